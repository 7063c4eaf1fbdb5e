"""The release format: the only description of a release in a file, over HTTP and in the ledger.

The shapes `RELEASE` and `MECHANISM` read the nodes of a file or an HTTP body and report all
problems with their positions (docs/releases.md). `value_check(RELEASE)` checks a recorded body.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any, NamedTuple

from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.releases.regions import MAX_PARTITION_VALUES
from dpolicy.text.shapes import (
    INVALID,
    BooleanShape,
    ChoiceShape,
    IdentityShape,
    ListShape,
    MapShape,
    NameShape,
    NumberShape,
    RecordField,
    RecordShape,
    Shape,
    report_wrong_type,
)
from dpolicy.text.value_checks import ValueCheck, value_check
from dpolicy.text.yaml_reader import (
    ListNode,
    MapNode,
    Report,
    ScalarNode,
    Span,
    TextNode,
)

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def node_to_plain(node: TextNode) -> Any:
    """Convert a node to plain values: exact numbers, text, lists and maps."""
    match node:
        case MapNode(entries=entries):
            return {key.text: node_to_plain(value) for key, value in entries}
        case ListNode(items=items):
            return [node_to_plain(item) for item in items]
        case ScalarNode(kind="number"):
            return node.number
        case ScalarNode(kind="bool", text=text):
            return text == "true"
        case ScalarNode(kind="null"):
            return None
        case ScalarNode(text=text):
            return text


class _Parameters(NamedTuple):
    """Parameters of a mechanism as plain values, and the position to report problems at."""

    values: dict[str, Any]
    span: Span


@dataclass(frozen=True, slots=True)
class _ParametersShape:
    """A map of parameters. The shape reads any map: `parse_mechanism` checks the parameters."""

    title: str
    has_kind: bool

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        return _Parameters(node_to_plain(node), node.span)

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


@value_check.register
def _(shape: _ParametersShape) -> ValueCheck:
    if shape.has_kind:
        return lambda value: type(value) is dict and type(value.get("kind")) is str
    return lambda value: type(value) is dict


@dataclass(frozen=True, slots=True)
class _LabelShape:
    """One value of a label, or a list of values."""

    title: str = "a label's value, or a list of values"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ListNode):
            return NameShape(self.title).read(node, report)
        values = ListShape(NameShape()).read(node, report)
        return tuple(sorted({str(value) for value in values}))

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [NameShape().schema(), ListShape(NameShape()).schema()]}


@value_check.register
def _(_shape: _LabelShape) -> ValueCheck:
    is_value, is_list = value_check(NameShape()), value_check(ListShape(NameShape()))
    return lambda value: is_value(value) or is_list(value)


_INTEGER = NumberShape(
    "a whole number",
    least=Fraction(-MAX_PARTITION_VALUES),
    most=Fraction(MAX_PARTITION_VALUES),
    whole=True,
)
_RANGE = RecordShape(
    "a range",
    {"from": RecordField(_INTEGER, required=True), "to": RecordField(_INTEGER, required=True)},
    lambda v, _: (v["from"], v["to"]),
)
_PARTITION_VALUES = ListShape(NameShape(), least=1)


@dataclass(frozen=True, slots=True)
class _SelectionShape:
    """The selected part of a partition: a value, a list of values, or a range.

    The ledger records a single value as a list.
    """

    title: str = "a value, a list of values, or a range"

    def read(self, node: TextNode, report: Report) -> Any:
        match node:
            case MapNode():
                return _RANGE.read(node, report)
            case ListNode():
                values = _PARTITION_VALUES.read(node, report)
                if values is INVALID or not values:  # empty if no entry is valid
                    return INVALID
                return tuple(sorted(set(map(str, values))))
            case _:
                value = NameShape().read(node, report)
                return value if value is INVALID else (str(value),)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [NameShape().schema(), ListShape(NameShape()).schema(), _RANGE.schema()]}


@value_check.register
def _(_shape: _SelectionShape) -> ValueCheck:
    is_list, is_range = value_check(_PARTITION_VALUES), value_check(_RANGE)
    return lambda value: is_list(value) or is_range(value)


@dataclass(frozen=True, slots=True)
class _WhereShape:
    """A box (a selection per partition), or a list of boxes whose union is selected.

    The ledger records a single box as a list.
    """

    title: str = "a map of partitions, or a list of such maps"

    def read(self, node: TextNode, report: Report) -> Any:
        box_shape = MapShape(_SelectionShape(), self.title)
        if isinstance(node, ListNode):
            return ListShape(box_shape, least=1).read(node, report)
        box = box_shape.read(node, report)
        return box if box is INVALID else (box,)

    def schema(self) -> dict[str, Any]:
        box = MapShape(_SelectionShape()).schema()
        return {"anyOf": [box, {"type": "array", "items": box}]}


@value_check.register
def _(_shape: _WhereShape) -> ValueCheck:
    return value_check(ListShape(MapShape(_SelectionShape())))


@dataclass(frozen=True, slots=True)
class DateShape:
    """A date such as 2026-10-28."""

    title: str = "a date such as 2026-10-28"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ScalarNode) or not _DATE.fullmatch(node.text):
            return report_wrong_type(node, self.title, report)
        try:
            return date.fromisoformat(node.text)
        except ValueError:
            report("P009", f"there is no day `{node.text}`", node.span, None)
            return INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "format": "date"}


@value_check.register
def _(_shape: DateShape) -> ValueCheck:
    return _is_date


def _is_date(value: Any) -> bool:
    try:
        date.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return True


_TIME = RecordShape(
    "`time`",
    {
        "from": RecordField(DateShape(), "first day"),
        "to": RecordField(DateShape(), "last day"),
    },
    lambda v, _: {key: day.isoformat() for key, day in v.items() if day is not None},
)

MECHANISM: Shape = RecordShape(
    "a mechanism of a release",
    {
        "name": RecordField(NameShape(), "name in reports"),
        "mechanism": RecordField(
            _ParametersShape("a mechanism such as {kind: gaussian}", has_kind=True), required=True
        ),
        "unit": RecordField(NameShape(), "privacy unit of the sensitivity or loss"),
        "relation": RecordField(
            ChoiceShape(tuple(NeighbouringRelation), "a neighbouring relation")
        ),
        "additive": RecordField(BooleanShape(), "theory 5.3", default=False),
        "also": RecordField(
            MapShape(_ParametersShape("parameters for another unit", has_kind=False)), default={}
        ),
        "attributes": RecordField(
            ListShape(NameShape()), "all attributes that influence the output", default=()
        ),
        "labels": RecordField(MapShape(_LabelShape()), default={}),
        "where": RecordField(
            _WhereShape(), "selected values of partitions; default: all units", default=()
        ),
        "time": RecordField(_TIME, "days of the data; default: static data"),
    },
    lambda values, _: values,
)

RELEASE: Shape = RecordShape(
    "a release",
    {
        "release": RecordField(
            NameShape("an id"), "idempotency key, chosen by the client", required=True
        ),
        "by": RecordField(IdentityShape(), "author of the request", default=""),
        "utility": RecordField(
            NumberShape("a utility from 0 to 10¹²", least=Fraction(0), most=Fraction(10**12))
        ),
        "mechanisms": RecordField(
            ListShape(MECHANISM, "a list of mechanisms", least=1), required=True
        ),
    },
    lambda values, _: values,
)
