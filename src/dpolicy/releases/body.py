"""Release bodies: a release as the plain values that the ledger records.

A body holds text, exact fractions, booleans, lists and maps under the keys of a release file, and
no key that the author left out. Equal requests have equal bodies, however their files are laid out.
`release_format` describes and checks bodies; this module turns a checked body into a `Release`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Any

from dpolicy.errors import InvalidValue
from dpolicy.privacy.mechanisms.registry import parse_mechanism, parse_restatements
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, TouchedDays, touched_days
from dpolicy.releases.release import MechanismRequest, Release, Selection

Body = Mapping[str, Any]


def release_from_body(body: Body) -> Release:
    """Return the release of a recorded body.

    Raise `InvalidValue` with the first problem of its mechanisms. The result is not marked as
    parsed (`Release.is_parsed`): a recorded body passed a check of its structure only.
    """
    mechanisms = []
    for position, fields in enumerate(body["mechanisms"], 1):
        mechanism, problems = mechanism_from_body(fields, position)
        if mechanism is None:
            raise problems[0]
        mechanisms.append(mechanism)
    return Release(
        id=body["release"],
        by=body.get("by", ""),
        utility=body.get("utility"),
        mechanisms=tuple(mechanisms),
        body=body,
    )


def mechanism_from_body(
    fields: Body, position: int
) -> tuple[MechanismRequest | None, tuple[InvalidValue, ...]]:
    """Return one mechanism of a body, or None with all its problems.

    `position` counts from 1 and names a mechanism without a `name`.
    """
    mechanism, problems = parse_mechanism(fields["mechanism"])
    restatements: Mapping[str, Any] = {}
    if mechanism is not None and "also" in fields:
        restatements, problems = parse_restatements(fields["mechanism"], fields["also"])
    days_read = None
    try:
        days_read = _parse_days(fields.get("time"))
    except InvalidValue as error:
        problems = (*problems, error)
    if mechanism is None or problems:
        return None, problems
    request = MechanismRequest(
        name=fields.get("name", f"mechanism {position}"),
        kind=fields["mechanism"]["kind"],
        mechanism=mechanism,
        unit=fields.get("unit"),
        relation=NeighbouringRelation(fields["relation"]) if "relation" in fields else None,
        additive=fields.get("additive", False),
        restatements=MappingProxyType(dict(restatements)),
        attributes=tuple(fields.get("attributes", ())),
        labels=MappingProxyType(
            {k: v if isinstance(v, str) else tuple(v) for k, v in fields.get("labels", {}).items()}
        ),
        where=tuple(
            MappingProxyType({k: _parse_selection(v) for k, v in box.items()})
            for box in fields.get("where", ())
        ),
        days_read=days_read,
    )
    return request, ()


def _parse_selection(selection: Any) -> Selection:
    return (
        (int(selection["from"]), int(selection["to"]))
        if isinstance(selection, Mapping)
        else tuple(selection)
    )


def _parse_days(period: Mapping[str, str] | None) -> TouchedDays | None:
    if period is None:
        return None
    first, last = (
        date.fromisoformat(period[key]) if key in period else None for key in ("from", "to")
    )
    return touched_days((first, last))


def copy_body(value: Any) -> Any:
    """Return a copy of a body that shares no map or list with it."""
    if isinstance(value, Mapping):
        return {key: copy_body(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copy_body(item) for item in value]
    return value
