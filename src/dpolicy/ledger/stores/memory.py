"""Store in memory: for tests, dry runs and cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from dpolicy.errors import InvariantBroken
from dpolicy.ledger.chain import Record
from dpolicy.ledger.chain_reader import Head, advance_head, check_not_older
from dpolicy.ledger.store import LogWriter
from dpolicy.ledger.write_lock import LOCK_TIMEOUT, StoreLock


class MemoryStore:
    """A ledger in a list, which is lost when the process ends."""

    def __init__(self, records: Sequence[Record] = (), *, wait: float = LOCK_TIMEOUT) -> None:
        self._records = list(records)
        self._lock = StoreLock(self.name, wait)
        self._snapshot: tuple[int, bytes] | None = None

    @property
    def name(self) -> str:
        """Name for messages."""
        return "memory"

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        """Hold the write lock; discard the appended records if the block raises."""
        with self._lock.held():
            pending = _PendingLog(self._records)
            try:
                yield pending
            finally:
                pending.open = False
            self._records.extend(pending.added)

    def records_after(self, sequence: int) -> Iterator[Record]:
        """Return the records after a number."""
        check_not_older(_head(self._records), sequence)
        return iter(self._records[sequence:])

    def load_snapshot(self) -> tuple[int, bytes] | None:
        """Return the snapshot, if there is one."""
        return self._snapshot

    def save_snapshot(self, sequence: int, data: bytes) -> None:
        """Replace the snapshot."""
        check_not_older(_head(self._records), sequence)
        self._snapshot = (sequence, data)

    def close(self) -> None:
        """Do nothing: there is no file or connection to close."""


class _PendingLog:
    """Records that a writer has appended and not yet committed."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self.added: list[Record] = []
        self.open = True

    def records_after(self, sequence: int) -> Iterator[Record]:
        committed = len(self._records)
        check_not_older(_head(self.added or self._records), sequence)
        return chain(self._records[sequence:], self.added[max(0, sequence - committed) :])

    def append(self, records: Sequence[Record]) -> None:
        if not self.open:
            raise InvariantBroken("a record is appended after the write block has ended")
        advance_head(_head(self.added or self._records), records)
        self.added.extend(records)


def _head(records: Sequence[Record]) -> Head:
    return Head(records[-1].sequence, records[-1].digest) if records else Head()
