"""A state → the releases that somebody looks for, newest first; and one of them with its decision.

A search goes through ids, who asked, and what the mechanisms say, all of which the state holds;
only the page that is shown is read from the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpolicy.enforcement.state import STATUSES, Entry, State
from dpolicy.ledger.canonical import encode
from dpolicy.ledger.events import Event, ReleaseDecided, body_of
from dpolicy.releases.decision import Decision
from dpolicy.service.views.paging import Paging, paging

#: Reads the event with a number.
ReadEvent = Callable[[int], Event]


@dataclass(frozen=True, slots=True)
class ReleaseLine:
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
class Releases:
    """A page of releases, and how many there are of each status."""

    wanted: Mapping[str, str]
    counts: Mapping[str, int]
    lines: tuple[ReleaseLine, ...]
    paging: Paging

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "wanted": dict(self.wanted),
            "statuses": dict(self.counts),
            "releases": [line.as_json() for line in self.lines],
            **self.paging.as_json(),
        }


@dataclass(frozen=True, slots=True)
class ReleasePage:
    """A release: how it stands, what was asked, and what was answered; imports have no answer."""

    line: ReleaseLine
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
class Found:
    """What a search found, before it is read: the names and entries of a page."""

    names: tuple[tuple[str, Entry], ...]
    counts: Mapping[str, int]
    paging: Paging


def find_releases(
    state: State, wanted: Mapping[str, str], page: int, own: str | None = None
) -> Found:
    """The releases that hold every word of `q` and have the status that is asked for.

    Only those of one person, if `own` names somebody.
    """
    words = [word.encode("utf-8") for word in wanted.get("q", "").lower().split()]
    status = wanted.get("status")
    counts = dict.fromkeys(STATUSES, 0)
    names: list[str] = []
    texts: dict[int, bytes] = {}
    for name, entry in state.entries.items():
        if own not in (None, state.contents[entry.content].by):
            continue
        if words:
            text = texts.get(entry.content)
            if text is None:
                content = state.contents[entry.content]
                text = content.by.lower().encode("utf-8") + b" " + content.mechanisms.lower()
                texts[entry.content] = text
            called = name.lower().encode("utf-8")
            if not all(word in called or word in text for word in words):
                continue
        counts[entry.status] += 1
        if status in (None, entry.status):
            names.append(name)
    shown = paging(page, len(names))
    newest = shown.of(names[::-1])
    return Found(tuple((name, state.entries[name]) for name in newest), counts, shown)


def releases_page(found: Found, wanted: Mapping[str, str], read: ReadEvent) -> Releases:
    """What was found, read from the ledger."""
    lines = tuple(_line(name, entry, read(entry.asked)) for name, entry in found.names)
    counts = {status: count for status, count in found.counts.items() if count}
    return Releases(wanted, counts, lines, found.paging)


def release_page(name: str, entry: Entry, read: ReadEvent, expires: str | None) -> ReleasePage:
    """One release, as it was asked for and answered."""
    event = read(entry.asked)
    decision = None
    if isinstance(event, ReleaseDecided):
        decision = Decision.from_json(json.loads(event.answer))
    return ReleasePage(
        _line(name, entry, event),
        json.loads(encode(body_of(read(entry.charged)))),
        decision,
        getattr(event, "because", ""),
        expires,
    )


def _line(name: str, entry: Entry, event: Event) -> ReleaseLine:
    body = body_of(event)
    mechanisms = body["mechanisms"]
    attributes = sorted({a for said in mechanisms for a in said.get("attributes", ())})
    kinds = tuple(dict.fromkeys(str(said["mechanism"]["kind"]) for said in mechanisms))
    by = asker(event)
    return ReleaseLine(name, entry.status, by, tuple(attributes), kinds, entry.asked, event.at)


def asker(event: Event) -> str:
    """Who asked for a release."""
    return getattr(event, "by", "") or str(body_of(event).get("by", ""))
