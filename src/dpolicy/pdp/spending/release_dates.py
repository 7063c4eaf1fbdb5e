"""Release dates: the day of each release, read from the record of its request."""

from __future__ import annotations

from array import array
from datetime import date
from functools import lru_cache

from dpolicy.errors import LedgerDamaged
from dpolicy.ledger.chain import Record
from dpolicy.ledger.decided_records import decode_decided_record
from dpolicy.ledger.events import decode_event_fast
from dpolicy.ledger.store import LedgerStore


class ReleaseDates:
    """Days of all records of a store by sequence number. Mutable; grows with the ledger."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._days = array("l", [0])

    def update(self, sequence: int) -> None:
        """Read the records up to `sequence` that were not read before."""
        if len(self._days) > sequence:
            return
        for record in self._store.records_after(len(self._days) - 1):
            self._days.append(release_date(record))

    def day(self, request_record: int) -> int:
        """Return the day of the release whose request has this record, as an ordinal."""
        return self._days[request_record]


def release_date(record: Record) -> int:
    """Return the day of the release that a record requests or imports, as an ordinal.

    It is the day of the record, or the own date of an imported release. A record of another kind
    has no release and returns its own day.
    """
    decided = decode_decided_record(record.payload)
    if decided:
        at = decided[0].at
    else:
        fields = decode_event_fast(record.payload)
        at = fields.get("released") or fields["at"]
    try:
        return _ordinal(at[:10])
    except ValueError:
        raise LedgerDamaged(f"record has the invalid time `{at[:40]}`") from None


@lru_cache(maxsize=4096)
def _ordinal(day: str) -> int:
    return date.fromisoformat(day).toordinal()
