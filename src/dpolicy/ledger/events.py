"""What can happen, as events with canonical bytes and a hash chain over them.

Ledger format 1. An event is never edited: a correction is another event. Events hold what was said
(policy texts, the mechanisms of releases), never balances: those are computed by folding.

Each record's hash covers the one before it, its own number and its bytes, so that changing,
dropping or reordering any record shows (`dpolicy verify`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dpolicy.errors import InvariantBroken, LedgerDamaged
from dpolicy.ledger.canonical import decode, encode

#: The format that this code writes and the newest it reads.
FORMAT = 1

#: The hash before the first record.
GENESIS = hashlib.sha256(b"dpolicy ledger 1").digest()


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


Event = (
    PolicyApplied
    | ReleaseDecided
    | ReleaseCommitted
    | ReleaseVoided
    | ReleaseExpired
    | ReleaseImported
    | ReleaseRelabelled
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
}
_NAMES = {kind: name for name, kind in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Record:
    """An event as it is stored: its number from 1, its hash, and its bytes."""

    sequence: int
    digest: bytes
    payload: bytes


def to_bytes(event: Event) -> bytes:
    """The canonical bytes of an event."""
    body = {f.name: getattr(event, f.name) for f in fields(event)}
    return encode({"format": FORMAT, "event": _NAMES[type(event)], **body})


def from_bytes(payload: bytes) -> Event:
    """The event of canonical bytes. Raises `LedgerDamaged` for anything else."""
    try:
        said = decode(payload)
        number, name = said.pop("format"), said.pop("event")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise LedgerDamaged("a record is not an event") from error
    if number != FORMAT:
        raise LedgerDamaged(f"a record has format {number}; this version reads format {FORMAT}")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None or {f.name for f in fields(kind)} != set(said):
        raise LedgerDamaged(f"a record is no event that this version knows: `{name}`")
    event: Event = kind(**{key: _frozen(value) for key, value in said.items()})
    try:
        canonical = to_bytes(event) == payload
    except InvariantBroken:
        canonical = False
    if not canonical:
        raise LedgerDamaged("a record is not in canonical form")
    return event


def body_of(event: Event) -> Mapping[str, Any]:
    """The release that an event holds. Raises `LedgerDamaged` if it holds none."""
    match event:
        case ReleaseDecided() | ReleaseImported() | ReleaseRelabelled():
            return event.body
        case ReleaseCommitted(body=body) if body is not None:
            return body
    raise LedgerDamaged("a record holds no release")


def glance(payload: bytes) -> dict[str, Any]:
    """An event as plain JSON, for what is read often: its numbers are not exact, its form is not
    checked. Raises `LedgerDamaged` for what is no event of this format.
    """
    try:
        said = json.loads(payload)
        known = said["format"] == FORMAT and said["event"] in KINDS
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LedgerDamaged("a record is not an event") from error
    if not known:
        from_bytes(payload)  # says what is wrong
        raise LedgerDamaged("a record is no event that this version knows")
    event: dict[str, Any] = said
    return event


def mechanisms_of(payload: bytes) -> bytes:
    """The canonical bytes of the mechanisms in an event that holds a body, cut out unread.

    Quotes inside a text are escaped and keys are sorted, so these keys can only be where they are.
    """
    try:
        start = payload.index(b'"mechanisms":', payload.index(b'"body":')) + len(b'"mechanisms":')
        return payload[start : payload.rindex(b',"release":', 0, payload.rindex(b',"release":'))]
    except ValueError as error:
        raise LedgerDamaged("a record holds no release") from error


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return value


def chained(previous: bytes, sequence: int, payload: bytes) -> bytes:
    """The hash of a record, which covers all records before it."""
    return hashlib.sha256(previous + sequence.to_bytes(8, "big") + payload).digest()


def record_after(previous: Record | None, event: Event) -> Record:
    """The record that an event becomes behind another."""
    payload = to_bytes(event)
    sequence = previous.sequence + 1 if previous else 1
    digest = chained(previous.digest if previous else GENESIS, sequence, payload)
    return Record(sequence, digest, payload)


def check_chain(previous: Record | None, record: Record) -> None:
    """Raise `LedgerDamaged` if a record does not follow another."""
    expected = previous.sequence + 1 if previous else 1
    if record.sequence != expected:
        raise LedgerDamaged(f"record {expected} is missing: record {record.sequence} follows")
    before = previous.digest if previous else GENESIS
    if chained(before, record.sequence, record.payload) != record.digest:
        raise LedgerDamaged(f"record {record.sequence} was changed, or one before it was")
