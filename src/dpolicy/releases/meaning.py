"""Meaning of a release: everything that its mechanisms left to the policy, written out.

A release may leave its unit, its relation and labels to the defaults of the policy, and it uses
names of units and partitions that the policy defines. The decision point completes all of that when
it records a release, and keeps the result in the record. A later policy never changes what an
earlier record means (docs/theory/records.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dpolicy.errors import InvalidValue, LedgerDamaged
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, parse_period

#: Calendar of all periods: Gregorian days of one time zone, weeks that begin on Monday (units.md).
CALENDAR = "gregorian"

#: Value of a label; None if the vocabulary had the label and the release left it out.
LabelValue = str | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class RecordedPartition:
    """Definition of a partition when a release selected by it.

    `owners` are the entities that have one value each; there are several if the policy left the
    owner open. Listed values and ranges of whole numbers are different definitions.
    """

    has_values: bool
    stable: bool
    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MechanismMeaning:
    """Unit, relation, attributes and labels of one mechanism; no field is left to a policy.

    `labels` has every label of the vocabulary at that time. A label that is not in it was unknown.
    """

    unit: str
    relation: NeighbouringRelation
    attributes: tuple[str, ...]
    labels: Mapping[str, LabelValue]


@dataclass(frozen=True, slots=True)
class ReleaseMeaning:
    """Meaning of the mechanisms of a release, with the definitions of the names that they use.

    The relation in `units` is not part of the meaning: each mechanism has its own.
    """

    units: Mapping[str, PrivacyUnit]
    partitions: Mapping[str, RecordedPartition]
    mechanisms: tuple[MechanismMeaning, ...]


def meaning_to_text(meaning: ReleaseMeaning) -> str:
    """Return a meaning as the text of its record: JSON with sorted keys."""
    plain = {
        "calendar": CALENDAR,
        "units": {name: _unit_to_plain(unit) for name, unit in meaning.units.items()},
        "partitions": {
            name: {
                "kind": "values" if partition.has_values else "range",
                "stable": partition.stable,
                "of": list(partition.owners),
            }
            for name, partition in meaning.partitions.items()
        },
        "mechanisms": [
            {
                "unit": mechanism.unit,
                "relation": str(mechanism.relation),
                "attributes": list(mechanism.attributes),
                "labels": dict(mechanism.labels),
            }
            for mechanism in meaning.mechanisms
        ],
    }
    return _encode(plain)


_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def _unit_to_plain(unit: PrivacyUnit) -> dict[str, str]:
    period = {} if unit.period is None else {"period": str(unit.period)}
    return {"entity": unit.entity, **period}


@lru_cache(maxsize=4096)
def meaning_from_text(text: str) -> ReleaseMeaning:
    """Return the meaning of a record. Raise `LedgerDamaged` if the text is not a meaning."""
    try:
        plain = json.loads(text)
        if plain["calendar"] != CALENDAR:
            raise LedgerDamaged(f"record has the unknown calendar `{plain['calendar']}`")
        meaning = _meaning_from_plain(plain)
        is_exact = meaning_to_text(meaning) == text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidValue) as error:
        raise LedgerDamaged("record has an invalid `meaning`") from error
    if not is_exact:
        raise LedgerDamaged("record has an invalid `meaning`")
    return meaning


def write_out(body: Mapping[str, Any], meaning: ReleaseMeaning) -> dict[str, Any]:
    """Return a release body in which the mechanisms state everything that they mean.

    A reader with another policy then reads the same units, relations and labels.
    """
    mechanisms = [
        {
            **fields,
            "unit": own.unit,
            "relation": str(own.relation),
            **({"attributes": list(own.attributes)} if own.attributes else {}),
            **_stated_labels(own),
        }
        for fields, own in zip(body["mechanisms"], meaning.mechanisms, strict=True)
    ]
    return {**body, "mechanisms": mechanisms}


def _stated_labels(own: MechanismMeaning) -> dict[str, Any]:
    stated = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in own.labels.items()
        if value is not None
    }
    return {"labels": stated} if stated else {}


def has_statements(part: ReleaseMeaning, whole: ReleaseMeaning) -> bool:
    """Return whether each mechanism of `part` has the statements of a mechanism of `whole`.

    The statements are unit, relation and labels. Units and partitions that both use must have the
    same definitions.
    """
    statements = [(own.unit, own.relation, own.labels) for own in whole.mechanisms]
    return (
        all((own.unit, own.relation, own.labels) in statements for own in part.mechanisms)
        and all(_is_same(unit, whole.units.get(name, unit)) for name, unit in part.units.items())
        and all(whole.partitions.get(name, p) == p for name, p in part.partitions.items())
    )


def _is_same(first: PrivacyUnit, second: PrivacyUnit) -> bool:
    return (first.entity, first.period) == (second.entity, second.period)


def check_meaning(text: str, body: Mapping[str, Any]) -> None:
    """Raise `LedgerDamaged` unless a text can be the meaning of a release body.

    It must have all mechanisms of the body, and define all units and partitions that they name.
    """
    meaning = meaning_from_text(text)
    mechanisms = body["mechanisms"]
    units = {name for fields in mechanisms for name in fields.get("also", {})}
    selected = {name for fields in mechanisms for box in fields.get("where", ()) for name in box}
    if (
        len(meaning.mechanisms) != len(mechanisms)
        or not units <= meaning.units.keys()
        or not selected <= meaning.partitions.keys()
    ):
        raise LedgerDamaged("record has a `meaning` of other mechanisms")


def _meaning_from_plain(plain: dict[str, Any]) -> ReleaseMeaning:
    """Return the meaning of plain values. Raise `TypeError` or `ValueError` for other values."""
    units = {
        name: PrivacyUnit(
            name, _text(unit["entity"]), parse_period(unit["period"]) if "period" in unit else None
        )
        for name, unit in plain["units"].items()
    }
    partitions = {
        name: RecordedPartition(
            partition["kind"] == "values", _flag(partition["stable"]), _texts(partition["of"])
        )
        for name, partition in plain["partitions"].items()
    }
    mechanisms = tuple(
        MechanismMeaning(
            _text(mechanism["unit"]),
            NeighbouringRelation(mechanism["relation"]),
            _texts(mechanism["attributes"]),
            {name: _label(value) for name, value in mechanism["labels"].items()},
        )
        for mechanism in plain["mechanisms"]
    )
    if any(mechanism.unit not in units for mechanism in mechanisms):
        raise LedgerDamaged("record has a `meaning` with an undefined unit")
    return ReleaseMeaning(units, partitions, mechanisms)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError("not a list of texts")
    return tuple(_text(value) for value in values)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("not a truth value")
    return value


def _label(value: object) -> LabelValue:
    if value is None:
        return None
    return _texts(value) if isinstance(value, list) else _text(value)
