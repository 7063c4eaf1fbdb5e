"""The plain body of a release, as it is kept in the ledger → the release it asks for.

A body holds text, exact fractions, truth values, lists and maps under the keys of a release file,
with nothing that was left out. Equal requests have equal bodies, whatever their layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dpolicy.errors import (
    InvalidValue,
)
from dpolicy.privacy.certificates import format_order
from dpolicy.privacy.mechanisms.registry import parse_mechanism, parse_restatements
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, TouchedDays, touched_days
from dpolicy.releases.release import MechanismRequest, Release, Selection

Body = Mapping[str, Any]


def release_from_body(body: Body) -> Release:
    """The release of a body. Raises `InvalidValue` with the first problem of its mechanisms."""
    mechanisms = []
    for position, said in enumerate(body["mechanisms"], 1):
        mechanism, problems = mechanism_from_body(said, position)
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
    """One mechanism of a body, or None with every problem found."""
    mechanism, problems = parse_mechanism(fields["mechanism"])
    also, more = (
        parse_restatements(fields["mechanism"], fields.get("also", {})) if mechanism else ({}, ())
    )
    try:
        days = _touched(fields.get("time"))
    except InvalidValue as error:
        days, more = None, (*more, error)
    if mechanism is None or more:
        return None, (*problems, *more)
    request = MechanismRequest(
        name=fields.get("name", f"mechanism {position}"),
        kind=fields["mechanism"]["kind"],
        mechanism=mechanism,
        unit=fields.get("unit"),
        relation=NeighbouringRelation(fields["relation"]) if "relation" in fields else None,
        additive=fields.get("additive", False),
        restatements=also,
        attributes=tuple(fields.get("attributes", ())),
        labels={
            k: v if isinstance(v, str) else tuple(v) for k, v in fields.get("labels", {}).items()
        },
        where=tuple({k: _selection(v) for k, v in box.items()} for box in fields.get("where", ())),
        days_read=days,
    )
    return request, ()


def _selection(selection: Any) -> Selection:
    return (
        (int(selection["from"]), int(selection["to"]))
        if isinstance(selection, Mapping)
        else tuple(selection)
    )


def _touched(period: Mapping[str, str] | None) -> TouchedDays | None:
    if period is None:
        return None
    first, last = (
        date.fromisoformat(period[key]) if key in period else None for key in ("from", "to")
    )
    return touched_days((first, last))


def to_plain_body(value: Any) -> Any:
    """Values of Python as a body holds them: exact numbers, text keys, lists.

    A float is taken as the decimal it prints, which is what its author wrote.
    """
    if isinstance(value, Mapping):
        return {_key(key): to_plain_body(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [to_plain_body(item) for item in value]
        return sorted(items) if all(isinstance(item, str) for item in items) else items
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidValue("M006", f"`{value}` is not a finite number")
        return Fraction(repr(value))
    if isinstance(value, int | Fraction | Decimal):
        return Fraction(value)
    if isinstance(value, date):
        return value.isoformat()
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _key(key: object) -> str:
    """Orders may be numbers; every other key is text."""
    if isinstance(key, float):
        return format_order(Fraction(repr(key)))
    return format_order(Fraction(key)) if isinstance(key, int | Fraction) else str(key)


def loss_relevant_fields(body: Body) -> list[dict[str, Any]]:
    """All of a body that decides what its mechanisms lose."""
    described = ("attributes", "labels", "name")
    return [
        {key: value for key, value in said.items() if key not in described}
        for said in body["mechanisms"]
    ]
