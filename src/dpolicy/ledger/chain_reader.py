"""Pages of a store → records in order; a gap, a lost end and an older copy are reported.

A store also keeps the number and hash of its last record, its head, so that records missing at the
end show, which the chain alone cannot tell. Pages keep readers from holding a store open: records
are never changed, so what is read in several steps is what one step would have read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dpolicy.errors import LedgerDamaged
from dpolicy.ledger.chain import GENESIS, Record, check_chain

#: A page is a compromise between trips to the store and memory: about this many bytes,
PAGE_BYTES = 4 * 2**20
#: at first this many records,
FIRST_PAGE = 64
#: and never more than this many.
LARGEST_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Head:
    """The number and hash of the last record; 0 and the genesis hash where there is none."""

    sequence: int = 0
    digest: bytes = GENESIS

    def as_record(self) -> Record | None:
        """The record to follow, without its bytes."""
        return Record(self.sequence, self.digest, b"") if self.sequence else None


#: (behind which number, at most how many) → the head, and records at least as new as it.
Fetch = Callable[[int, int], tuple[Head, Sequence[Record]]]


def read_in_pages(fetch: Fetch, sequence: int) -> Iterator[Record]:
    """All records behind a number, up to a head not older than the call."""
    limit = FIRST_PAGE
    while True:
        head, records = fetch(sequence, limit)
        check_not_older(head, sequence)
        for record in records:
            if record.sequence != sequence + 1:
                raise LedgerDamaged(
                    f"record {sequence + 1} is missing: record {record.sequence} follows"
                )
            if record.sequence == head.sequence and record.digest != head.digest:
                raise LedgerDamaged(f"record {record.sequence} is not the one last written")
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
    """Raise `LedgerDamaged` if a store ends before a record that was already seen in it."""
    if sequence > head.sequence:
        raise LedgerDamaged(
            f"record {head.sequence + 1} is missing: the ledger ends at record {head.sequence}, "
            f"but it had {sequence}; an older copy was put in its place"
        )


def advance_head(head: Head, records: Sequence[Record]) -> Head:
    """The head after records, each of which must follow the one before it."""
    previous = head.as_record()
    for record in records:
        check_chain(previous, record)
        previous = record
    return Head(previous.sequence, previous.digest) if previous else head
