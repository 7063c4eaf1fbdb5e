"""Watch on the write blocks of a store: their number, and the CPU time inside of each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dpolicy.ledger.store import LedgerStore, LogWriter


@dataclass
class WriteWatch:
    """Write blocks of a store since the last `clear`. Mutable.

    `held` has the CPU seconds of each block, from the moment that the store holds the lock until
    the block ends. The commit follows, and is not part of it.
    """

    held: list[float] = field(default_factory=list)

    @property
    def commits(self) -> int:
        """The number of blocks that ended normally."""
        return len(self.held)

    def clear(self) -> None:
        """Forget all blocks."""
        self.held.clear()


def watch_writes(store: LedgerStore) -> WriteWatch:
    """Watch the write blocks of a store from now on."""
    watch, open_for_writing = WriteWatch(), store.open_for_writing

    @contextmanager
    def open_watched() -> Iterator[LogWriter]:
        with open_for_writing() as log:
            start = time.thread_time()
            yield log
            watch.held.append(time.thread_time() - start)

    store.open_for_writing = open_watched  # type: ignore[method-assign]
    return watch
