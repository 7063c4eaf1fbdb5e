"""A state → the releases that somebody looks for, newest first; and one of them with its decision.

A search goes through ids, who asked, and what the mechanisms say, all of which the state holds;
only the page that is shown is read from the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import Event, ReleaseDecided, event_author, release_body_in
from dpolicy.pdp.ledger_state import STATUSES, LedgerState, ReleaseEntry
from dpolicy.releases.decision import Decision
from dpolicy.service.dashboard.pagination import Pagination, paginate

#: Reads the event with a number.
ReadEvent = Callable[[int], Event]


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """One release in a list."""

    release: str
    status: str
    by: str
    attributes: tuple[str, ...]
    mechanisms: tuple[str, ...]
    sequence: int
    at: str

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "release": self.release,
            "status": self.status,
            "by": self.by,
            "attributes": list(self.attributes),
            "mechanisms": list(self.mechanisms),
            "sequence": self.sequence,
            "at": self.at,
        }


@dataclass(frozen=True, slots=True)
class ReleaseListPage:
    """A page of releases, and how many there are of each status."""

    filters: Mapping[str, str]
    counts: Mapping[str, int]
    lines: tuple[ReleaseRow, ...]
    paging: Pagination

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "wanted": dict(self.filters),
            "statuses": dict(self.counts),
            "releases": [line.as_json() for line in self.lines],
            **self.paging.as_json(),
        }


@dataclass(frozen=True, slots=True)
class ReleasePage:
    """A release: how it stands, what was asked, and what was answered; imports have no answer."""

    line: ReleaseRow
    body: Mapping[str, Any]
    decision: Decision | None
    because: str
    expires: str | None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            **self.line.as_json(),
            "body": self.body,
            "decision": self.decision.as_json() if self.decision else None,
            "because": self.because,
            "expires": self.expires,
        }


@dataclass(frozen=True, slots=True)
class ReleaseSearchResult:
    """What a search found, before it is read: the names and entries of a page."""

    names: tuple[tuple[str, ReleaseEntry], ...]
    counts: Mapping[str, int]
    paging: Pagination


def find_releases(
    state: LedgerState, filters: Mapping[str, str], page: int, own: str | None = None
) -> ReleaseSearchResult:
    """The releases that hold every word of `q` and have the status that is asked for.

    Only those of one person, if `own` names somebody.
    """
    words = [word.encode("utf-8") for word in filters.get("q", "").lower().split()]
    status = filters.get("status")
    counts = dict.fromkeys(STATUSES, 0)
    names: list[str] = []
    texts: dict[int, bytes] = {}
    for name, entry in state.entries.items():
        if own not in (None, state.charge_groups[entry.charge_group].by):
            continue
        if words:
            text = texts.get(entry.charge_group)
            if text is None:
                content = state.charge_groups[entry.charge_group]
                text = content.by.lower().encode("utf-8") + b" " + content.mechanisms.lower()
                texts[entry.charge_group] = text
            called = name.lower().encode("utf-8")
            if not all(word in called or word in text for word in words):
                continue
        counts[entry.status] += 1
        if status in (None, entry.status):
            names.append(name)
    shown = paginate(page, len(names))
    newest = shown.items_on_page(names[::-1])
    return ReleaseSearchResult(tuple((name, state.entries[name]) for name in newest), counts, shown)


def releases_page(
    search_result: ReleaseSearchResult, filters: Mapping[str, str], read: ReadEvent
) -> ReleaseListPage:
    """What was found, read from the ledger."""
    lines = tuple(
        _line(name, entry, read(entry.request_record)) for name, entry in search_result.names
    )
    counts = {status: count for status, count in search_result.counts.items() if count}
    return ReleaseListPage(filters, counts, lines, search_result.paging)


def release_page(
    name: str, entry: ReleaseEntry, read: ReadEvent, expires: str | None
) -> ReleasePage:
    """One release, as it was asked for and answered."""
    event = read(entry.request_record)
    decision = None
    if isinstance(event, ReleaseDecided):
        decision = Decision.from_json(json.loads(event.answer))
    return ReleasePage(
        _line(name, entry, event),
        json.loads(encode_canonical(release_body_in(read(entry.charge_record)))),
        decision,
        getattr(event, "because", ""),
        expires,
    )


def _line(name: str, entry: ReleaseEntry, event: Event) -> ReleaseRow:
    body = release_body_in(event)
    mechanisms = body["mechanisms"]
    attributes = sorted({a for said in mechanisms for a in said.get("attributes", ())})
    kinds = tuple(dict.fromkeys(str(said["mechanism"]["kind"]) for said in mechanisms))
    by = release_author(event)
    return ReleaseRow(
        name, entry.status, by, tuple(attributes), kinds, entry.request_record, event.at
    )


def release_author(event: Event) -> str:
    """Who asked for a release."""
    return event_author(event) or str(release_body_in(event).get("by", ""))
