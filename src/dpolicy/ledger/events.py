"""Events of the ledger, and their canonical bytes.

An event is never edited: a correction is another event. Events hold requests (policy texts, the
mechanisms of releases) and the decisions on them, never balances: folding the events computes
those. `event_schema` describes which fields a recorded event has; `chain` links records by hashes,
so that `dpolicy verify` detects a record that was changed, dropped or moved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from dpolicy.errors import InvariantBroken, LedgerDamaged
from dpolicy.ledger.canonical import decode_canonical, encode_canonical
from dpolicy.ledger.chain import GENESIS, Record, record_hash
from dpolicy.ledger.event_schema import ADDED_FIELDS, DATED_FIELDS, EVENT_FORMATS, check_event
from dpolicy.ledger.event_schema import check_body as check_body

#: The format of the tables or files in which a store keeps records.
FORMAT = 1


@dataclass(frozen=True, slots=True)
class PolicyApplied:
    """A policy set became the active policy; `accepted` names the accepted conflicts.

    `defaults` is the number of the defaults that complete the text; None in a record of format 1.
    """

    at: str
    by: str
    because: str
    digest: str
    sources: tuple[tuple[str, str], ...]
    accepted: tuple[str, ...]
    defaults: int | None = None


@dataclass(frozen=True, slots=True)
class ReleaseDecided:
    """A requested release was allowed or denied.

    `answer` is the decision that the client received, as JSON text. A reservation (`reserved`)
    is charged, and stays charged after it expired. `meaning` is the text of `releases.meaning`:
    empty if no policy was active, None in a record of format 1.
    """

    at: str
    by: str
    release: str
    body: Mapping[str, Any]
    allowed: bool
    reserved: bool
    expires: str | None
    answer: str
    meaning: str | None = None


@dataclass(frozen=True, slots=True)
class ReleaseCommitted:
    """A reservation was used; `body` is the release that was run if it was less than reserved.

    Only a record with a `body` has a `meaning`.
    """

    at: str
    by: str
    release: str
    body: Mapping[str, Any] | None
    meaning: str | None = None


@dataclass(frozen=True, slots=True)
class ReleaseVoided:
    """A reservation was not used: `by` attests that nothing was computed from data."""

    at: str
    by: str
    release: str
    because: str


@dataclass(frozen=True, slots=True)
class ReleaseExpired:
    """A reservation expired without a commit or void; it stays charged."""

    at: str
    release: str


@dataclass(frozen=True, slots=True)
class ReleaseImported:
    """A release was recorded after the fact; it is charged regardless of the budgets.

    `released` is the day on which it happened, such as 2024-03-01; None if the record does not
    state it. It is information for people: the charge does not depend on it.
    """

    at: str
    by: str
    because: str
    release: str
    body: Mapping[str, Any]
    meaning: str | None = None
    released: str | None = None


@dataclass(frozen=True, slots=True)
class ReleaseRelabelled:
    """The meaning of a recorded release was corrected; its mechanisms are the same."""

    at: str
    by: str
    because: str
    release: str
    body: Mapping[str, Any]
    meaning: str | None = None


@dataclass(frozen=True, slots=True)
class ReleaseProposed:
    """A requested release needs an approver; nothing is charged yet."""

    at: str
    by: str
    release: str
    body: Mapping[str, Any]
    reserve: bool
    meaning: str | None = None


@dataclass(frozen=True, slots=True)
class VoidProposed:
    """`by` attests that nothing was computed from data; an approver must confirm the void."""

    at: str
    by: str
    release: str
    because: str


@dataclass(frozen=True, slots=True)
class RelabellingProposed:
    """A correction that lowers a charge needs an approver; nothing is changed yet."""

    at: str
    by: str
    because: str
    release: str
    body: Mapping[str, Any]
    meaning: str


@dataclass(frozen=True, slots=True)
class PolicyProposed:
    """A policy set needs an approver before it becomes the active policy."""

    at: str
    by: str
    because: str
    digest: str
    sources: tuple[tuple[str, str], ...]
    accepted: tuple[str, ...]
    defaults: int | None = None


@dataclass(frozen=True, slots=True)
class ProposalAnswered:
    """An approver approved or rejected a proposal; the next record executes an approved one."""

    at: str
    by: str
    because: str
    proposal: int
    approved: bool


Event = (
    PolicyApplied
    | ReleaseDecided
    | ReleaseCommitted
    | ReleaseVoided
    | ReleaseExpired
    | ReleaseImported
    | ReleaseRelabelled
    | ReleaseProposed
    | VoidProposed
    | RelabellingProposed
    | PolicyProposed
    | ProposalAnswered
)

#: The name of each kind of event in the ledger; never changed, never reused.
KINDS: dict[str, type[Any]] = {
    "policy-applied": PolicyApplied,
    "release-decided": ReleaseDecided,
    "release-committed": ReleaseCommitted,
    "release-voided": ReleaseVoided,
    "release-expired": ReleaseExpired,
    "release-imported": ReleaseImported,
    "release-relabelled": ReleaseRelabelled,
    "release-proposed": ReleaseProposed,
    "void-proposed": VoidProposed,
    "relabelling-proposed": RelabellingProposed,
    "policy-proposed": PolicyProposed,
    "proposal-answered": ProposalAnswered,
}
_NAMES = {kind: name for name, kind in KINDS.items()}


def event_author(event: Event) -> str:
    """Return who caused an event; empty for `ReleaseExpired`, which the decision point writes."""
    return "" if isinstance(event, ReleaseExpired) else event.by


def release_day(event: Event) -> str:
    """Return the day on which the release of an event happened: its own date, else the record's."""
    own = event.released if isinstance(event, ReleaseImported) else None
    return own or event.at[:10]


def release_body_in(event: Event) -> Mapping[str, Any]:
    """Return the release body that an event holds. Raise `LedgerDamaged` if it holds none."""
    match event:
        case ReleaseDecided() | ReleaseImported() | ReleaseRelabelled():
            return event.body
        case ReleaseProposed() | RelabellingProposed():
            return event.body
        case ReleaseCommitted(body=body) if body is not None:
            return body
    raise LedgerDamaged("record has no release body")


def to_bytes(event: Event) -> bytes:
    """Return the canonical bytes of an event."""
    name = _NAMES[type(event)]
    values = {f.name: getattr(event, f.name) for f in fields(event)}
    format_ = EVENT_FORMATS[name]
    if name in ADDED_FIELDS:
        added, _ = ADDED_FIELDS[name]
        if values[added] is None:
            del values[added]
        else:
            format_ = 3
    if name in DATED_FIELDS:
        dated, _ = DATED_FIELDS[name]
        if values[dated] is None:
            del values[dated]
        else:
            format_ = 4
    return encode_canonical({"format": format_, "event": name, **values})


def next_record(previous: Record | None, event: Event) -> Record:
    """Return the record that stores an event after `previous`, or as the first record."""
    return link_record(previous, to_bytes(event))


def link_record(previous: Record | None, payload: bytes) -> Record:
    """Return the record that stores canonical bytes after `previous`, or as the first record."""
    sequence = previous.sequence + 1 if previous else 1
    digest = record_hash(previous.digest if previous else GENESIS, sequence, payload)
    return Record(sequence, digest, payload)


def from_bytes(payload: bytes) -> Event:
    """Return the event of canonical bytes. Raise `LedgerDamaged` for any other bytes."""
    try:
        values = decode_canonical(payload)
    except (ValueError, RecursionError) as error:
        raise LedgerDamaged("record is not an event") from error
    kind = KINDS[check_event(values)]
    names = (f.name for f in fields(kind) if f.name in values)
    event: Event = kind(**{name: _to_field(values[name]) for name in names})
    try:
        canonical = to_bytes(event) == payload
    except (InvariantBroken, ValueError, RecursionError):
        canonical = False
    if not canonical:
        raise LedgerDamaged("record is not in canonical form")
    return event


def _to_field(value: Any) -> Any:
    """Convert a checked value to the type of its field: lists to tuples, record numbers to int."""
    if isinstance(value, list):
        return tuple(_to_field(item) for item in value)
    return int(value) if isinstance(value, Fraction) else value


def decode_event_fast(payload: bytes) -> dict[str, Any]:
    """Decode an event quickly: numbers become floats or ints; canonical form and release bodies
    are not checked (use `check_body`). Raise `LedgerDamaged` if it is not an event.
    """
    try:
        values = json.loads(payload.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise LedgerDamaged("record is not an event") from error
    check_event(values, with_body=False)
    event: dict[str, Any] = values
    return event


def mechanism_bytes(payload: bytes) -> bytes:
    """Return the canonical bytes of the mechanisms in an event with a body, without decoding.

    Invariant "no unescaped quote": in canonical JSON a quote inside a text is written `\\"`, so the
    bytes `"key":` occur only where a map has that key. Keys are sorted, and this gives the
    positions:

    - `"body":` comes first: the event fields before it (`allowed`, `answer`, `at`, `because`)
      hold no map;
    - within the body only `by`, which is a text, comes before `"mechanisms":`;
    - the last `,"release":` is the event's own field and the one before it is the body's, which
      follows the mechanisms. After the body, no event field holds a map.

    A new event field that holds a map, or a new body key between `mechanisms` and `release`, would
    break this; `tests/ledger/test_canonical.py` has a canary for each. Raise `LedgerDamaged`
    if the keys are missing.
    """
    try:
        start = payload.index(b'"mechanisms":', payload.index(b'"body":')) + len(b'"mechanisms":')
        event_release = payload.rindex(b',"release":')
        body_release = payload.rindex(b',"release":', 0, event_release)
    except ValueError as error:
        raise LedgerDamaged("record has no release body") from error
    return payload[start:body_release]
