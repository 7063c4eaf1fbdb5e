"""Read records in order and detect gaps, truncation and rollback.

The store keeps the head (number and hash of the last record), because the hash chain alone does not
reveal missing records at the end. Records are read in pages, so that a reader does not keep a
transaction open; since records never change, several pages give the same result as one query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dpolicy.errors import LedgerDamaged
from dpolicy.ledger.chain import GENESIS, Record, check_chain

#: Approximate size of a page in bytes: larger pages need fewer queries and more memory.
PAGE_BYTES = 4 * 2**20
#: Number of records in the first page, before the size of a record is known.
FIRST_PAGE = 64
#: Maximum number of records in a page.
LARGEST_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Head:
    """The number and hash of the last record; 0 and the genesis hash in an empty ledger."""

    sequence: int = 0
    digest: bytes = GENESIS

    def as_record(self) -> Record | None:
        """Return the last record, without its bytes; None in an empty ledger."""
        return Record(self.sequence, self.digest, b"") if self.sequence else None


#: (number, limit) → the head, and at most `limit` records after that number, read no earlier.
Fetch = Callable[[int, int], tuple[Head, Sequence[Record]]]


def read_in_pages(fetch: Fetch, sequence: int) -> Iterator[Record]:
    """Yield all records after a number, up to a head that is read after the call.

    Raise `LedgerDamaged` for a missing record, or if the last record does not match the head.
    """
    limit = FIRST_PAGE
    while True:
        head, records = fetch(sequence, limit)
        check_not_older(head, sequence)
        for record in records:
            if record.sequence != sequence + 1:
                raise LedgerDamaged(
                    f"record {sequence + 1} is missing: the next record is {record.sequence}"
                )
            if record.sequence == head.sequence and record.digest != head.digest:
                raise LedgerDamaged(
                    f"record {record.sequence} does not match the head of the ledger"
                )
            yield record
            sequence = record.sequence
        if sequence >= head.sequence:
            return
        if not records:
            raise LedgerDamaged(
                f"record {sequence + 1} is missing: the ledger ends at record {head.sequence}"
            )
        size = sum(len(record.payload) for record in records) // len(records) + 1
        limit = max(1, min(LARGEST_PAGE, PAGE_BYTES // size))


def check_not_older(head: Head, sequence: int) -> None:
    """Raise `LedgerDamaged` if a store ends before a record that this process has already read."""
    if sequence > head.sequence:
        raise LedgerDamaged(
            f"record {head.sequence + 1} is missing: the ledger ends at record {head.sequence}, "
            f"but it had {sequence}; the ledger was replaced by an older copy"
        )


def advance_head(head: Head, records: Sequence[Record]) -> Head:
    """Return the head after appending records. Raise `LedgerDamaged` if the chain is broken."""
    previous = head.as_record()
    for record in records:
        check_chain(previous, record)
        previous = record
    return Head(previous.sequence, previous.digest) if previous else head
