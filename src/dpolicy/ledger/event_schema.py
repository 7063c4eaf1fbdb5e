"""Schema of the events in the ledger: format, fields, and the check of each field.

A record states its format: 1, 2 for the kinds that concern proposals, 3 for a record with the
fields that format 3 added (`ADDED_FIELDS`), or 4 for an imported release with its own date
(`DATED_FIELDS`). This version always writes the fields of format 3, and reads records without them.
It writes format 4 only if the date is known. A ledger of format 1 is therefore also a ledger of
format 4. `body` fields are checked by the release format (`releases/release_format.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from fractions import Fraction
from typing import Any

from dpolicy.errors import LedgerDamaged
from dpolicy.releases.release_format import RELEASE
from dpolicy.text.shapes import ListShape, TextShape
from dpolicy.text.value_checks import ValueCheck, is_boolean, is_number, is_text, value_check

#: The newest format of a record that this code writes and reads.
NEWEST_FORMAT = 4

_is_text_list = value_check(ListShape(TextShape()))
_is_body = value_check(RELEASE)


def _is_record_number(value: Any) -> bool:
    return type(value) in (int, Fraction) and value >= 1 and value == int(value)


def _is_optional_text(value: Any) -> bool:
    return value is None or is_text(value)


def _is_day(value: Any) -> bool:
    """Return whether a value is a day in the only form that a record has, such as 2026-10-28."""
    try:
        return is_text(value) and date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def _is_optional_body(value: Any) -> bool:
    return value is None or _is_body(value)


def _is_source(value: Any) -> bool:
    """Return whether a value is the name and the text of a policy file."""
    return _is_text_list(value) and len(value) == 2


def _is_source_list(value: Any) -> bool:
    return type(value) is list and len(value) >= 1 and all(map(_is_source, value))


_POLICY: Mapping[str, ValueCheck] = {
    "at": is_text,
    "by": is_text,
    "because": is_text,
    "digest": is_text,
    "sources": _is_source_list,
    "accepted": _is_text_list,
}
_VOID: Mapping[str, ValueCheck] = {
    "at": is_text,
    "by": is_text,
    "release": is_text,
    "because": is_text,
}
_RECORDED_RELEASE: Mapping[str, ValueCheck] = {
    "at": is_text,
    "by": is_text,
    "because": is_text,
    "release": is_text,
    "body": _is_body,
}

#: The fields of each kind of event, with the check of a field's recorded value.
EVENT_FIELDS: Mapping[str, Mapping[str, ValueCheck]] = {
    "policy-applied": _POLICY,
    "release-decided": {
        "at": is_text,
        "by": is_text,
        "release": is_text,
        "body": _is_body,
        "allowed": is_boolean,
        "reserved": is_boolean,
        "expires": _is_optional_text,
        "answer": is_text,
    },
    "release-committed": {
        "at": is_text,
        "by": is_text,
        "release": is_text,
        "body": _is_optional_body,
    },
    "release-voided": _VOID,
    "release-expired": {"at": is_text, "release": is_text},
    "release-imported": _RECORDED_RELEASE,
    "release-relabelled": _RECORDED_RELEASE,
    "release-proposed": {
        "at": is_text,
        "by": is_text,
        "release": is_text,
        "body": _is_body,
        "reserve": is_boolean,
    },
    "void-proposed": _VOID,
    "relabelling-proposed": {**_RECORDED_RELEASE, "meaning": is_text},
    "policy-proposed": _POLICY,
    "proposal-answered": {
        "at": is_text,
        "by": is_text,
        "because": is_text,
        "proposal": _is_record_number,
        "approved": is_boolean,
    },
}

_PROPOSAL_EVENTS = ("release-proposed", "void-proposed", "policy-proposed", "proposal-answered")

#: The format of each kind of record without the fields of `ADDED_FIELDS`.
EVENT_FORMATS: Mapping[str, int] = {
    name: 2 if name in _PROPOSAL_EVENTS else 1 for name in EVENT_FIELDS
} | {"relabelling-proposed": 3}

#: The field that format 3 added to a kind of record: the meaning of a release, or the number of the
#: defaults that complete a policy text (`pdp/policy_changes/recorded_policy.py`).
ADDED_FIELDS: Mapping[str, tuple[str, ValueCheck]] = {
    **dict.fromkeys(
        (
            *("release-decided", "release-committed", "release-imported", "release-relabelled"),
            "release-proposed",
        ),
        ("meaning", is_text),
    ),
    **dict.fromkeys(("policy-applied", "policy-proposed"), ("defaults", _is_record_number)),
}

#: The field that format 4 added: the day on which an imported release happened.
DATED_FIELDS: Mapping[str, tuple[str, ValueCheck]] = {"release-imported": ("released", _is_day)}


def _record_checks() -> Iterator[tuple[tuple[str, int], dict[str, ValueCheck]]]:
    """Yield the checks of all keys of a record, by kind and format."""
    for name, checks in EVENT_FIELDS.items():
        keys = {"format": is_number, "event": is_text, **checks}
        yield (name, EVENT_FORMATS[name]), keys
        if name in ADDED_FIELDS:
            field, check = ADDED_FIELDS[name]
            keys = {**keys, field: check}
            yield (name, 3), keys
        if name in DATED_FIELDS:
            field, check = DATED_FIELDS[name]
            yield (name, 4), {**keys, field: check}


_RECORD_FIELDS = dict(_record_checks())


def check_event(payload: Any, *, with_body: bool = True) -> str:
    """Return the event type of a decoded record.

    Raise `LedgerDamaged` unless the record has exactly the fields of its event type, and each
    value has the shape of its field. `with_body=False` skips the release body.
    """
    if not isinstance(payload, dict) or "format" not in payload or "event" not in payload:
        raise LedgerDamaged("record is not an event")
    number, name = payload["format"], payload["event"]
    if number not in range(1, NEWEST_FORMAT + 1):
        raise LedgerDamaged(f"record has format {number}; this version reads up to {NEWEST_FORMAT}")
    if not isinstance(name, str) or name not in EVENT_FIELDS:
        raise LedgerDamaged(f"unknown event type `{name}`")
    checks = _RECORD_FIELDS.get((name, int(number)))
    if checks is None:
        raise LedgerDamaged(f"record `{name}` has format {number}, not {EVENT_FORMATS[name]}")
    if checks.keys() != payload.keys():
        raise LedgerDamaged(f"record `{name}` does not have the fields of its event type")
    for field, is_valid in checks.items():
        if (with_body or field != "body") and not is_valid(payload[field]):
            raise LedgerDamaged(f"record `{name}` has an invalid `{field}`")
    if name == "release-committed" and "meaning" in payload and payload["body"] is None:
        raise LedgerDamaged("record `release-committed` has a `meaning` without a `body`")
    if payload.get("reserved") and payload["expires"] is None:
        raise LedgerDamaged("reservation record has no expiry time")
    return str(name)


def check_body(body: Any) -> None:
    """Raise `LedgerDamaged` if a recorded value is not the body of a release."""
    if not _is_body(body):
        raise LedgerDamaged("record has an invalid `body`")
