"""Release dates: the day and author of each release, read from the record of its request."""

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
    """Days of all records of a store by sequence number. Mutable; grows with the ledger.

    Before version 0.3 an author that was only an argument was recorded beside the release:
    `authors_beside` has these authors by record.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._days = array("l", [0])
        self.authors_beside: dict[int, str] = {}

    def update(self, sequence: int) -> None:
        """Read the records up to `sequence` that were not read before."""
        if len(self._days) > sequence:
            return
        for record in self._store.records_after(len(self._days) - 1):
            day, author = _read_request(record)
            if author:
                self.authors_beside[len(self._days)] = author
            self._days.append(day)

    def day(self, request_record: int) -> int:
        """Return the day of the release whose request has this record, as an ordinal."""
        return self._days[request_record]


def _read_request(record: Record) -> tuple[int, str]:
    """Return the day of the release that a record requests or imports, and the author beside it.

    The day, as an ordinal, is that of the record, or the own date of an imported release. A record
    of another kind has no release and returns its own day.
    """
    decided = decode_decided_record(record.payload)
    if decided:
        at, author = decided[0].at, "" if decided[0].body.by else decided[0].by
    else:
        fields = decode_event_fast(record.payload)
        at, body = fields.get("released") or fields["at"], fields.get("body")
        author = fields["by"] if isinstance(body, dict) and not body.get("by") else ""
    try:
        return _ordinal(at[:10]), author
    except ValueError:
        raise LedgerDamaged(f"record has the invalid time `{at[:40]}`") from None


@lru_cache(maxsize=4096)
def _ordinal(day: str) -> int:
    return date.fromisoformat(day).toordinal()
