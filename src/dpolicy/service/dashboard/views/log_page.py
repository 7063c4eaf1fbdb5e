"""Log page: records of the ledger, newest first, with their hashes and an optional audit."""

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
    RelabellingProposed,
    ReleaseDecided,
    VoidProposed,
    event_author,
    from_bytes,
)
from dpolicy.pdp.audits.audit import AuditReport
from dpolicy.service.dashboard.pagination import PER_PAGE, Pagination, paginate

#: Largest ledger that the page verifies; `dpolicy verify` verifies longer ones.
MAX_RECORDS_TO_VERIFY = 2_000


@dataclass(frozen=True, slots=True)
class LogRow:
    """One record. `previous` is the hash of the record before it.

    `released` is the own date of an imported release.
    """

    sequence: int
    at: str
    event: str
    subject: str
    by: str
    because: str
    digest: str
    previous: str
    released: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "sequence": self.sequence,
            "at": self.at,
            "event": self.event,
            "about": self.subject,
            "by": self.by,
            "because": self.because,
            "digest": self.digest,
            "previous": self.previous,
            "released": self.released,
        }


@dataclass(frozen=True, slots=True)
class LogPage:
    """One page of the log. `audit` is None if the log was not verified."""

    head: str
    rows: tuple[LogRow, ...]
    pagination: Pagination
    audit: AuditReport | None
    is_verifiable: bool

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "head": self.head,
            "records": [row.as_json() for row in self.rows],
            "audit": None if self.audit is None else _audit_json(self.audit),
            **self.pagination.as_json(),
        }


def _audit_json(audit: AuditReport) -> dict[str, Any]:
    return {
        "records": audit.records,
        "head": audit.head,
        "findings": [
            {"record": finding.sequence, "problem": finding.problem} for finding in audit.findings
        ],
    }


def select_log_records(page: int, total: int) -> tuple[Pagination, int]:
    """Return the page, and the number of the record after which reading must start.

    Reading starts one record early, because each row also has the hash of the previous record.
    """
    pagination = paginate(page, total)
    return pagination, max(0, total - pagination.first - PER_PAGE - 1)


def build_log_page(
    records: Iterable[Record], pagination: Pagination, head: str, audit: AuditReport | None
) -> LogPage:
    """Build a log page from records in ledger order that start where `select_log_records` says."""
    newest = pagination.total - pagination.first
    read_records = list(islice(records, PER_PAGE + 1))
    previous = {record.sequence + 1: record.digest.hex() for record in read_records}
    rows = [
        _build_row(record, previous.get(record.sequence, GENESIS.hex()))
        for record in read_records
        if newest - PER_PAGE < record.sequence <= newest
    ]
    is_verifiable = pagination.total <= MAX_RECORDS_TO_VERIFY
    return LogPage(head, tuple(reversed(rows)), pagination, audit, is_verifiable)


def _build_row(record: Record, previous: str) -> LogRow:
    event = from_bytes(record.payload)
    name, subject = _describe_event(event)
    return LogRow(
        record.sequence,
        event.at,
        name,
        subject,
        event_author(event),
        getattr(event, "because", ""),
        record.digest.hex(),
        previous,
        getattr(event, "released", None),
    )


def _describe_event(event: Event) -> tuple[str, str]:
    """Return a short name of the event, and the release, policy or proposal that it concerns."""
    match event:
        case PolicyApplied():
            return "policy applied", event.digest[:19]
        case PolicyProposed():
            return "policy proposed", event.digest[:19]
        case ProposalAnswered():
            return "approved" if event.approved else "rejected", str(event.proposal)
        case ReleaseDecided(allowed=False):
            return "denied", event.release
        case ReleaseDecided():
            return "reserved" if event.reserved else "allowed", event.release
        case VoidProposed():
            return "void proposed", event.release
        case RelabellingProposed():
            return "relabelling proposed", event.release
    return type(event).__name__.removeprefix("Release").lower(), event.release
