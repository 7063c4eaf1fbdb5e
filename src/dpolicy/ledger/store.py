"""The interface of a store: an append-only list of records, durable, with one write lock.

    with store.open_for_writing() as log:       # the only writer, across all processes
        records = log.records_after(sequence)   # records that other writers have appended
        log.append(records)                     # durable when the block ends without an exception
    store.records_after(sequence)               # readers never wait for the writer

If the block ends normally, the records survive a crash of the process and of the machine. If it
raises, nothing was written, unless the error reports an unknown outcome: then the store has written
either all records or none. One contract suite tests all stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from dpolicy.ledger.chain import Record


class LogWriter(Protocol):
    """A store that is open for writing; no other thread or process can write."""

    def records_after(self, sequence: int) -> Iterator[Record]:
        """Return the records after a number, in order."""

    def append(self, records: Sequence[Record]) -> None:
        """Append records; they are durable when the block ends."""


class LedgerStore(Protocol):
    """Storage of a ledger."""

    @property
    def name(self) -> str:
        """Path or address for messages, without a password."""

    def open_for_writing(self) -> AbstractContextManager[LogWriter]:
        """Wait for the write lock and hold it in a `with` block."""

    def records_after(self, sequence: int) -> Iterator[Record]:
        """Return the durable records after a number, in order."""

    def load_snapshot(self) -> tuple[int, bytes] | None:
        """Return the number of the last record in the snapshot, and its bytes. Only a cache."""

    def save_snapshot(self, sequence: int, data: bytes) -> None:
        """Replace the snapshot. Without one, opening the ledger only takes longer."""

    def close(self) -> None:
        """Close files and connections."""
