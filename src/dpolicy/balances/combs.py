"""Combs: boxes of a region that differ on one axis only, so that one lookup serves them all.

Listed values of a partition form such a comb.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpolicy.releases.regions import Box, Region


@dataclass(frozen=True, slots=True)
class Teeth:
    """Disjoint intervals of one axis, in ascending order."""

    axis: int
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Comb:
    """One box, or one box per tooth if there are teeth: boxes that differ on one axis only.

    `hull` is the box around all of them.
    """

    hull: Box
    teeth: Teeth | None = None


def clip_boxes(region: Region, space: Box) -> list[Box]:
    """Return the boxes of a region, clipped to the space."""
    cut = [
        tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, space, strict=True))
        for box in region.boxes
    ]
    return [box for box in cut if all(low < high for low, high in box)]


@lru_cache(maxsize=1024)
def region_combs(region: Region, space: Box, max_single: int) -> tuple[Comb, ...]:
    """Return the boxes of a region in the space as combs, with the axis that needs fewest combs.

    Up to `max_single` boxes are not combined.
    """
    boxes = clip_boxes(region, space)
    if len(boxes) <= max_single:
        return tuple(Comb(box) for box in boxes)
    axis, groups = min(
        ((axis, _group_by_other_axes(boxes, axis)) for axis in range(len(space))),
        key=lambda grouping: len(grouping[1]),
    )
    return tuple(_build_comb(group, axis) for group in groups)


def count_cuts(comb: Comb, low: NDArray[np.int64], high: NDArray[np.int64]) -> int:
    """Return how many borders of a comb lie inside cells that touch it, one by one.

    `low` and `high` are the sides of the cells, axes × cells.
    """
    cuts = 0
    for axis, (start, end) in enumerate(comb.hull):
        if comb.teeth is None or axis != comb.teeth.axis:
            cuts += int(np.count_nonzero(low[axis] < start) + np.count_nonzero(high[axis] > end))
            continue
        for borders in (comb.teeth.starts, comb.teeth.ends):
            first = np.searchsorted(borders, low[axis], side="right")
            cuts += int((np.searchsorted(borders, high[axis]) - first).sum())
    return cuts


def _group_by_other_axes(boxes: Sequence[Box], axis: int) -> list[list[Box]]:
    """Group boxes that agree on all axes except `axis`."""
    groups: dict[Box, list[Box]] = {}
    for box in boxes:
        groups.setdefault(box[:axis] + box[axis + 1 :], []).append(box)
    return list(groups.values())


def _build_comb(boxes: Sequence[Box], axis: int) -> Comb:
    """Build the comb of boxes that agree on all axes except `axis`."""
    if len(boxes) == 1:
        return Comb(boxes[0])
    starts, ends = np.array(sorted(box[axis] for box in boxes), np.int64).T
    extent = (int(starts[0]), int(ends[-1]))
    hull = (*boxes[0][:axis], extent, *boxes[0][axis + 1 :])
    return Comb(hull, Teeth(axis, starts, ends))
