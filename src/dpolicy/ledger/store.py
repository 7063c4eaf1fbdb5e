"""What every store promises: an append-only list of records, written under one lock, durable.

    with store.writing() as log:      # the only writer, over all processes
        records = log.after(seen)     # what others have written since
        log.append(records)           # durable when the block ends without an exception
    store.after(seen)                 # readers never wait for the writer

When `writing()` ends normally, the records survive a crash of the process and of the machine. When
it ends with an exception, nothing was written, unless the exception says that the outcome is not
known: then all of it was, or nothing. One contract suite tests all stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from dpolicy.ledger.chain import Record


class LogWriter(Protocol):
    """A store while this process is its only writer."""

    def records_after(self, sequence: int) -> Iterator[Record]:
        """The records behind a number, in order."""

    def append(self, records: Sequence[Record]) -> None:
        """Add records; they are durable when the block ends."""


class LedgerStore(Protocol):
    """Where a ledger is kept."""

    @property
    def name(self) -> str:
        """The path or address, for messages; without a password."""

    def open_for_writing(self) -> AbstractContextManager[LogWriter]:
        """Wait to be the only writer."""

    def records_after(self, sequence: int) -> Iterator[Record]:
        """The durable records behind a number, in order."""

    def load_snapshot(self) -> tuple[int, bytes] | None:
        """The newest snapshot: up to which record, and its bytes. Only a cache."""

    def save_snapshot(self, sequence: int, data: bytes) -> None:
        """Replace the snapshot; losing it changes nothing but time."""

    def close(self) -> None:
        """Let go of files and connections."""
