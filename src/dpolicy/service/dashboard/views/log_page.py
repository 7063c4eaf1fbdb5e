"""A ledger → its records, newest first, each with its hash; and whether all of it verifies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dpolicy.ledger.chain import GENESIS, Record
from dpolicy.ledger.events import (
    Event,
    PolicyApplied,
    PolicyProposed,
    ProposalAnswered,
    ReleaseDecided,
    VoidProposed,
    event_author,
    from_bytes,
)
from dpolicy.pdp.audit import AuditReport
from dpolicy.service.dashboard.pagination import PER_PAGE, Pagination, paginate

#: More records than this are verified by `dpolicy verify`: a page does not wait for so long.
MAX_RECORDS_TO_VERIFY = 2_000


@dataclass(frozen=True, slots=True)
class LogRow:
    """One record: what happened, to what, by whom, and its hash."""

    sequence: int
    at: str
    what: str
    about: str
    by: str
    because: str
    digest: str
    before: str

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "sequence": self.sequence,
            "at": self.at,
            "event": self.what,
            "about": self.about,
            "by": self.by,
            "because": self.because,
            "digest": self.digest,
            "previous": self.before,
        }


@dataclass(frozen=True, slots=True)
class LogPage:
    """A page of the log; `audit` is there if it was verified just now."""

    head: str
    lines: tuple[LogRow, ...]
    paging: Pagination
    audit: AuditReport | None
    verifiable: bool

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        found = self.audit
        return {
            "head": self.head,
            "records": [line.as_json() for line in self.lines],
            "audit": None
            if found is None
            else {
                "records": found.records,
                "head": found.head,
                "findings": [
                    {"record": finding.sequence, "problem": finding.problem}
                    for finding in found.findings
                ],
            },
            **self.paging.as_json(),
        }


def log_span(page: int, total: int) -> tuple[Pagination, int]:
    """Which records a page shows, and behind which number to start reading."""
    shown = paginate(page, total)
    return shown, max(0, total - shown.first - PER_PAGE - 1)


def log_page(
    records: Iterable[Record], pagination: Pagination, head: str, audit: AuditReport | None
) -> LogPage:
    """A page of records, which begin one before the first that is shown, if there is one."""
    newest = pagination.total - pagination.first
    read = list(islice(records, PER_PAGE + 1))
    before = {record.sequence + 1: record.digest.hex() for record in read}
    lines = [
        _line(record, before.get(record.sequence, GENESIS.hex()))
        for record in read
        if newest - PER_PAGE < record.sequence <= newest
    ]
    verifiable = pagination.total <= MAX_RECORDS_TO_VERIFY
    return LogPage(head, tuple(reversed(lines)), pagination, audit, verifiable)


def _line(record: Record, before: str) -> LogRow:
    event = from_bytes(record.payload)
    return LogRow(
        record.sequence,
        event.at,
        *_said(event),
        event_author(event),
        getattr(event, "because", ""),
        record.digest.hex(),
        before,
    )


def _said(event: Event) -> tuple[str, str]:
    """What happened in a word or two, and to what."""
    match event:
        case PolicyApplied() | PolicyProposed():
            word = "policy applied" if isinstance(event, PolicyApplied) else "policy proposed"
            return word, event.digest[:19]
        case ProposalAnswered():
            return "approved" if event.approved else "rejected", str(event.proposal)
        case ReleaseDecided():
            word = "reserved" if event.reserved else "allowed"
            return word if event.allowed else "denied", event.release
        case VoidProposed():
            return "void proposed", event.release
    return type(event).__name__.removeprefix("Release").lower(), event.release
