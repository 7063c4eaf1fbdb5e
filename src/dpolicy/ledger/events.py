"""What can happen, as events with canonical bytes and a hash chain over them.

An event is never edited: a correction is another event. Events hold what was said (policy texts,
the mechanisms of releases), never balances: those are computed by folding.

Each record says its format, which is that of its kind: 1, or 2 for what a second person has to do
with. A ledger of format 1 is so a ledger of format 2 in which nobody has proposed anything yet.

Each record's hash covers the one before it, its own number and its bytes, so that changing,
dropping or reordering any record shows (`dpolicy verify`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import date
from fractions import Fraction
from typing import Any

from dpolicy.errors import InvariantBroken, LedgerDamaged
from dpolicy.ledger.canonical import decode_canonical, encode_canonical
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

#: The format of the places in which records are kept.
FORMAT = 1
#: The newest format of a record that this code writes and reads.
NEWEST_FORMAT = 2


@dataclass(frozen=True, slots=True)
class PolicyApplied:
    """A policy set is in force from here on; `accepted` names the conflicts that were accepted."""

    at: str
    by: str
    because: str
    digest: str
    sources: tuple[tuple[str, str], ...]
    accepted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseDecided:
    """A release was asked for and allowed or denied; the answer is kept as it was given.

    `answer` is JSON text. A reservation (`reserved`) counts as spent, also after it expired.
    """

    at: str
    by: str
    release: str
    body: Mapping[str, Any]
    allowed: bool
    reserved: bool
    expires: str | None
    answer: str


@dataclass(frozen=True, slots=True)
class ReleaseCommitted:
    """A reservation was used; `body` is what was really run, if that was less than reserved."""

    at: str
    by: str
    release: str
    body: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ReleaseVoided:
    """A reservation was not used: somebody attests that nothing was computed from data."""

    at: str
    by: str
    release: str
    because: str


@dataclass(frozen=True, slots=True)
class ReleaseExpired:
    """A reservation ran out with its outcome unknown; it stays spent."""

    at: str
    release: str


@dataclass(frozen=True, slots=True)
class ReleaseImported:
    """A past release that no rule may refuse."""

    at: str
    by: str
    because: str
    release: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReleaseRelabelled:
    """A past release is described anew; its mechanisms and their losses stay the same."""

    at: str
    by: str
    because: str
    release: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReleaseProposed:
    """A release was asked for that waits for a second person; nothing is charged yet."""

    at: str
    by: str
    release: str
    body: Mapping[str, Any]
    reserve: bool


@dataclass(frozen=True, slots=True)
class VoidProposed:
    """Somebody attests that nothing was computed; a second person has to agree."""

    at: str
    by: str
    release: str
    because: str


@dataclass(frozen=True, slots=True)
class PolicyProposed:
    """A policy set that waits for a second person before it is in force."""

    at: str
    by: str
    because: str
    digest: str
    sources: tuple[tuple[str, str], ...]
    accepted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProposalAnswered:
    """A second person answered; what was approved is done by the next record."""

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
    "policy-proposed": PolicyProposed,
    "proposal-answered": ProposalAnswered,
}
_NAMES = {kind: name for name, kind in KINDS.items()}
_SECOND = ("release-proposed", "void-proposed", "policy-proposed", "proposal-answered")
#: The format of each kind of record.
_FORMATS = {name: 2 if name in _SECOND else 1 for name in KINDS}

#: Whether a plain value is what it should be.
_Fits = Callable[[Any], bool]


def _is(kind: type[Any]) -> _Fits:
    return lambda value: type(value) is kind


def _list(item: _Fits, least: int = 0) -> _Fits:
    return lambda value: type(value) is list and len(value) >= least and all(map(item, value))


def _map(item: _Fits) -> _Fits:
    return lambda value: type(value) is dict and all(map(item, value.values()))


def _record(needed: Mapping[str, _Fits], **others: _Fits) -> _Fits:
    """A map that has what is needed; of keys that are not named here, anything is held."""
    known = {**needed, **others}
    return lambda value: (
        type(value) is dict
        and needed.keys() <= value.keys()
        and all(known[key](item) for key, item in value.items() if key in known)
    )


def _either(one: _Fits, other: _Fits) -> _Fits:
    return lambda value: one(value) or other(value)


def _day(value: Any) -> bool:
    try:
        return bool(date.fromisoformat(value))
    except (TypeError, ValueError):
        return False


def _whole(value: Any) -> bool:
    return type(value) in (int, Fraction) and value >= 1 and value == int(value)


_TEXT, _NONE = _is(str), _is(type(None))
_NUMBER = _either(_is(Fraction), _either(_is(int), _is(float)))
_RELATIONS = tuple(NeighbouringRelation)
_BODY = _record(
    {
        "release": _TEXT,
        "mechanisms": _list(
            _record(
                {"mechanism": _record({"kind": _TEXT})},
                name=_TEXT,
                unit=_TEXT,
                relation=lambda value: value in _RELATIONS,
                additive=_is(bool),
                also=_map(_is(dict)),
                attributes=_list(_TEXT),
                labels=_map(_either(_TEXT, _list(_TEXT))),
                where=_list(
                    _map(_either(_list(_TEXT, 1), _record({"from": _NUMBER, "to": _NUMBER})))
                ),
                time=_record({}, **{"from": _day, "to": _day}),
            ),
            least=1,
        ),
    },
    by=_TEXT,
    utility=_NUMBER,
)
_BY_TYPE: dict[object, _Fits] = {
    "str": _TEXT,
    "bool": _is(bool),
    "int": _whole,
    "str | None": _either(_TEXT, _NONE),
    "tuple[str, ...]": _list(_TEXT),
    "tuple[tuple[str, str], ...]": _list(lambda pair: _list(_TEXT, 2)(pair) and len(pair) == 2, 1),
    "Mapping[str, Any]": _BODY,
    "Mapping[str, Any] | None": _either(_NONE, _BODY),
}
_SHAPES = {
    name: {"format": _NUMBER, "event": _TEXT, **{f.name: _BY_TYPE[f.type] for f in fields(kind)}}
    for name, kind in KINDS.items()
}


def to_bytes(event: Event) -> bytes:
    """The canonical bytes of an event."""
    body = {f.name: getattr(event, f.name) for f in fields(event)}
    name = _NAMES[type(event)]
    return encode_canonical({"format": _FORMATS[name], "event": name, **body})


def from_bytes(payload: bytes) -> Event:
    """The event of canonical bytes. Raises `LedgerDamaged` for anything else."""
    try:
        said = decode_canonical(payload)
    except (ValueError, RecursionError) as error:
        raise LedgerDamaged("a record is not an event") from error
    kind = _kind_of(said)
    event: Event = kind(**{f.name: _frozen(said[f.name], f.type) for f in fields(kind)})
    try:
        canonical = to_bytes(event) == payload
    except (InvariantBroken, ValueError, RecursionError):
        canonical = False
    if not canonical:
        raise LedgerDamaged("a record is not in canonical form")
    return event


def release_body_in(event: Event) -> Mapping[str, Any]:
    """The release that an event holds. Raises `LedgerDamaged` if it holds none."""
    match event:
        case ReleaseDecided() | ReleaseImported() | ReleaseRelabelled() | ReleaseProposed():
            return event.body
        case ReleaseCommitted(body=body) if body is not None:
            return body
    raise LedgerDamaged("a record holds no release")


def decode_event_fast(payload: bytes) -> dict[str, Any]:
    """An event as plain JSON, for what is read often: its numbers are not exact, its form need not
    be canonical, and a body is looked at by `check_body` when it is new. Raises `LedgerDamaged`.
    """
    try:
        said = json.loads(payload.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise LedgerDamaged("a record is not an event") from error
    _kind_of(said, bodies=False)
    event: dict[str, Any] = said
    return event


def check_body(body: Any) -> None:
    """Raise `LedgerDamaged` for what is not the body of a release."""
    if not _BODY(body):
        raise LedgerDamaged("a record has a `body` of the wrong shape")


def mechanism_bytes(payload: bytes) -> bytes:
    """The canonical bytes of the mechanisms in an event that holds a body, cut out unread.

    Quotes inside a text are escaped and keys are sorted, so these keys can only be where they are.
    """
    try:
        start = payload.index(b'"mechanisms":', payload.index(b'"body":')) + len(b'"mechanisms":')
        return payload[start : payload.rindex(b',"release":', 0, payload.rindex(b',"release":'))]
    except ValueError as error:
        raise LedgerDamaged("a record holds no release") from error


def _kind_of(payload: Any, *, bodies: bool = True) -> type[Any]:
    """The kind of event that plain values make up: every field is there and of its type."""
    if not isinstance(payload, dict) or "format" not in payload or "event" not in payload:
        raise LedgerDamaged("a record is not an event")
    number, name = payload["format"], payload["event"]
    if number not in range(1, NEWEST_FORMAT + 1):
        raise LedgerDamaged(
            f"a record has format {number}; this version reads up to {NEWEST_FORMAT}"
        )
    shape = _SHAPES.get(name) if isinstance(name, str) else None
    if shape is None or shape.keys() != payload.keys() or _FORMATS[name] != number:
        raise LedgerDamaged(f"a record is no event that this version knows: `{name}`")
    for field, fits in shape.items():
        if (bodies or field != "body") and not fits(payload[field]):
            raise LedgerDamaged(f"a record `{name}` has a `{field}` of the wrong shape")
    if payload.get("reserved") and payload["expires"] is None:
        raise LedgerDamaged("a record reserves and does not say until when")
    return KINDS[str(name)]


def _frozen(value: Any, type_: object = None) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return int(value) if type_ == "int" else value
