"""Batches that a training has drawn since its last step, by their number of sampled records.

The numbers come from the sampler and not from the batches, because a collate function can repeat
records. Clipping bounds the gradient of a row. A record that occurs in several rows therefore moves
the sum of a step by several bounds (theory 3.6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from opacus.utils.uniform_sampler import UniformWithReplacementSampler

from dpolicy.errors import OperationRejected


class CountingSampler(UniformWithReplacementSampler):  # type: ignore[misc]
    """Poisson sampler that stores the number of records of each sample of its latest pass."""

    sizes: deque[int]

    def __iter__(self) -> Iterator[list[int]]:
        self.sizes = deque()
        return self._draw_samples(self.sizes)

    def _draw_samples(self, sizes: deque[int]) -> Iterator[list[int]]:
        for indices in super().__iter__():
            sizes.append(len(indices))
            yield indices


class DrawnBatches:
    """Numbers of records in the batches that were drawn since the last step."""

    def __init__(self) -> None:
        self._sizes: list[int] = []

    def iterate(self, loader: Any) -> Iterator[Any]:
        """Yield the batches of a loader with a counting sampler, and note their sizes."""
        batches = iter(loader)
        sizes = loader.batch_sampler.sizes  # Of this pass: `iter` has started it.
        for batch in batches:
            self._sizes.append(sizes.popleft())
            yield batch

    def check_step(self, gradients: list[Any]) -> None:
        """Refuse a step that does not use one sample with one row of gradients for each record."""
        if not self._sizes:
            raise OperationRejected("each step needs a fresh sample: draw the next batch first")
        used = [size for size in self._sizes if size]  # Empty batches may be skipped.
        if len(used) > 1:
            raise OperationRejected(
                f"{len(used)} batches were drawn since the last step: a step must use one Poisson "
                "sample; help: draw one batch for each step, and look at records elsewhere"
            )
        rows, records = max(map(len, gradients), default=0), sum(used)
        if rows > records:
            raise OperationRejected(
                f"the gradients have {rows} rows, and the batch has {records} records: a record in "
                "several rows is clipped once for each; help: use one row for each record"
            )

    def use(self) -> None:
        """Mark the drawn batch as used, so that the next step needs another."""
        self._sizes.clear()
