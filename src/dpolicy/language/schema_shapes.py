"""Shapes that a plain record cannot say: memberships by level, partitions, points and curves."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpolicy.language.model import Attribute, Partition
from dpolicy.language.shape import (
    INVALID,
    ByKey,
    Field,
    Flag,
    ListOf,
    Name,
    Number,
    Record,
    wrong_type,
)
from dpolicy.language.source import List, Map, Node, Report, Scalar
from dpolicy.privacy.certificates import MIN_ORDER

#: Ranges of partitions are kept as boundaries, so this only refuses slips.
MAX_PARTITION = 10**12

UNIT_NAMES = ListOf(Name(), "a list of units", least=1)


@dataclass(frozen=True, slots=True)
class _AttributeShape:
    """`risk`, and a list of categories for each membership level, whatever those are called."""

    title: str = "an attribute"

    def read(self, node: Node, report: Report) -> Any:
        if isinstance(node, Scalar) and node.kind == "null":
            return Attribute()
        if not isinstance(node, Map):
            return wrong_type(node, self.title, report)
        risk, memberships, valid = None, {}, True
        for key, child in node.entries:
            shape = Name() if key.text == "risk" else UNIT_NAMES_LIKE
            value = shape.read(child, report)
            valid = valid and value is not INVALID
            if key.text == "risk":
                risk = value
            else:
                memberships[key.word] = value
        return Attribute(risk, memberships) if valid else INVALID

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"risk": Name().schema()},
            "additionalProperties": UNIT_NAMES_LIKE.schema(),
        }


UNIT_NAMES_LIKE = ListOf(Name(), "a list of categories")
ATTRIBUTE = _AttributeShape()

_WHOLE = Number(
    "a whole number", least=Fraction(-MAX_PARTITION), most=Fraction(MAX_PARTITION), whole=True
)
_STABLE = Field(Flag(), "whether a unit keeps its value for ever", default=True)

PARTITION = ByKey(
    "a partition",
    {
        "values": Record(
            "a partition by values",
            {"values": Field(ListOf(Name(), least=1), required=True), "stable": _STABLE},
            lambda v, _: Partition(values=v["values"], stable=v["stable"]),
        ),
        "from": Record(
            "a partition by range",
            {
                "from": Field(_WHOLE, required=True),
                "to": Field(_WHOLE, required=True),
                "stable": _STABLE,
            },
            lambda v, _: Partition(first=v["from"], last=v["to"], stable=v["stable"]),
        ),
    },
)

_POINT = Number("a number that is not negative or absurd", least=Fraction(0), most=Fraction(10**6))


@dataclass(frozen=True, slots=True)
class _Points:
    """Pairs [x, y] with x rising."""

    title: str = "a list of points [x, y]"

    def read(self, node: Node, report: Report) -> Any:
        if not isinstance(node, List) or not node.items:
            return wrong_type(node, self.title, report)
        points = [self._point(item, report) for item in node.items]
        if INVALID in points:
            return INVALID
        for (x, _), (following, _), item in zip(points, points[1:], node.items[1:], strict=False):
            if following <= x:
                report("P043", "the points must have rising x", item.span, "sort them by x")
                return INVALID
        return tuple(points)

    def _point(self, node: Node, report: Report) -> Any:
        if not isinstance(node, List) or len(node.items) != 2:
            return wrong_type(node, "a point [x, y]", report)
        x, y = (_POINT.read(item, report) for item in node.items)
        return INVALID if INVALID in (x, y) else (x, y)

    def schema(self) -> dict[str, Any]:
        pair = {"type": "array", "items": _POINT.schema(), "minItems": 2, "maxItems": 2}
        return {"type": "array", "items": pair, "minItems": 1}


POINTS = _Points()


@dataclass(frozen=True, slots=True)
class _Renyi:
    """A map from orders to divergences."""

    title: str = "a map from orders to divergences"

    def read(self, node: Node, report: Report) -> Any:
        if not isinstance(node, Map) or not node.entries:
            return wrong_type(node, self.title, report)
        order = Number("an order of at least 1.01", least=MIN_ORDER, most=Fraction(10**6))
        pairs = [
            (order.read(_unquoted(key), report), _POINT.read(value, report))
            for key, value in node.entries
        ]
        if any(INVALID in pair for pair in pairs):
            return INVALID
        if len({order for order, _ in pairs}) < len(pairs):
            report("P004", "an order stands here twice", node.span, "remove one of them")
            return INVALID
        return tuple(sorted(pairs))

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": _POINT.schema(), "minProperties": 1}


def _unquoted(key: Scalar) -> Scalar:
    """JSON can write an order only as text."""
    number = key.text.replace(".", "", 1).isdigit()
    return Scalar(key.span, key.text, "number") if number and key.text.isascii() else key


RENYI = _Renyi()
