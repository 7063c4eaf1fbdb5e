"""Release pages: the list of releases, newest first, and one release with its decision.

A search reads the ids, authors and mechanisms in the ledger state. Only the releases on the
requested page are read from the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import (
    Event,
    ReleaseDecided,
    ReleaseImported,
    event_author,
    release_body_in,
)
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.release_archive import STATUSES, ReleaseEntry
from dpolicy.releases.body import release_from_body
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.service.dashboard.pagination import Pagination, paginate

#: Function that reads the event of a record by its number.
EventReader = Callable[[int], Event]


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """One release in a list; `released` is the own date of an imported one."""

    release: str
    status: str
    by: str
    attributes: tuple[str, ...]
    mechanisms: tuple[str, ...]
    sequence: int
    at: str
    released: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "release": self.release,
            "status": self.status,
            "by": self.by,
            "attributes": list(self.attributes),
            "mechanisms": list(self.mechanisms),
            "sequence": self.sequence,
            "at": self.at,
            "released": self.released,
        }


@dataclass(frozen=True, slots=True)
class ReleaseListPage:
    """One page of releases, and the number of matching releases by status."""

    filters: Mapping[str, str]
    counts: Mapping[str, int]
    rows: tuple[ReleaseRow, ...]
    pagination: Pagination

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "filters": dict(self.filters),
            "statuses": dict(self.counts),
            "releases": [row.as_json() for row in self.rows],
            **self.pagination.as_json(),
        }


@dataclass(frozen=True, slots=True)
class ReleasePage:
    """One release with its charged body and its decision; imported releases have no decision."""

    row: ReleaseRow
    body: Mapping[str, Any]
    decision: Decision | None
    because: str
    expires: str | None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **self.row.as_json(),
            "body": self.body,
            "decision": None if self.decision is None else self.decision.as_json(),
            "because": self.because,
            "expires": self.expires,
        }


@dataclass(frozen=True, slots=True)
class ReleaseSearchResult:
    """Ids and entries of the releases on one page of a search, without their events."""

    entries: tuple[tuple[str, ReleaseEntry], ...]
    counts: Mapping[str, int]
    pagination: Pagination


def find_releases(
    state: LedgerState, filters: Mapping[str, str], page: int, visible_owner: str | None = None
) -> ReleaseSearchResult:
    """Find the releases that contain every word of `q` and have the requested `status`.

    With `visible_owner`, releases of other people are neither listed nor counted.
    """
    words = [word.encode("utf-8") for word in filters.get("q", "").lower().split()]
    status = filters.get("status")
    counts = dict.fromkeys(STATUSES, 0)
    names: list[str] = []
    text_by_group: dict[int, bytes] = {}
    for name, entry in state.entries.items():
        group = state.charge_groups[entry.charge_group]
        if visible_owner not in (None, group.by):
            continue
        if words:
            text = text_by_group.get(entry.charge_group)
            if text is None:
                text = group.by.lower().encode("utf-8") + b" " + group.mechanisms.lower()
                text_by_group[entry.charge_group] = text
            id_text = name.lower().encode("utf-8")
            if not all(word in id_text or word in text for word in words):
                continue
        counts[entry.status] += 1
        if status in (None, entry.status):
            names.append(name)
    pagination = paginate(page, len(names))
    entries = tuple((name, state.entries[name]) for name in pagination.items_on_page(names[::-1]))
    return ReleaseSearchResult(entries, counts, pagination)


def build_release_list_page(
    search_result: ReleaseSearchResult, filters: Mapping[str, str], read_event: EventReader
) -> ReleaseListPage:
    """Build the list page of a search result; reads one event per listed release."""
    rows = tuple(
        _build_row(name, entry, read_event(entry.request_record))
        for name, entry in search_result.entries
    )
    counts = {status: count for status, count in search_result.counts.items() if count}
    return ReleaseListPage(filters, counts, rows, search_result.pagination)


def build_release_page(
    name: str,
    entry: ReleaseEntry,
    read_event: EventReader,
    expires: str | None,
    add_advice: Callable[[Release, Decision], Decision],
) -> ReleasePage:
    """Build the page of one release; `expires` is the end of its open reservation.

    A denied release has the counter-offers and top spenders of now.
    """
    event = read_event(entry.request_record)
    decision = None
    if isinstance(event, ReleaseDecided):
        recorded = Decision.from_json(json.loads(event.answer))
        decision = add_advice(release_from_body(event.body), recorded)
    return ReleasePage(
        _build_row(name, entry, event),
        json.loads(encode_canonical(release_body_in(read_event(entry.charge_record)))),
        decision,
        getattr(event, "because", ""),
        expires,
    )


def _build_row(name: str, entry: ReleaseEntry, event: Event) -> ReleaseRow:
    mechanisms = release_body_in(event)["mechanisms"]
    attributes = sorted({a for fields in mechanisms for a in fields.get("attributes", ())})
    kinds = dict.fromkeys(str(fields["mechanism"]["kind"]) for fields in mechanisms)
    author = release_author(event)
    record = entry.request_record
    released = event.released if isinstance(event, ReleaseImported) else None
    return ReleaseRow(
        name, entry.status, author, tuple(attributes), tuple(kinds), record, event.at, released
    )


def release_author(event: Event) -> str:
    """Return the author of the event, else that of the release body, else an empty string."""
    return event_author(event) or str(release_body_in(event).get("by", ""))
