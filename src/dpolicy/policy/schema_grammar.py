"""Shapes that a plain record cannot say: memberships by level, partitions, points and curves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpolicy.policy.model import Attribute, Collapse, Partition
from dpolicy.privacy.certificates import MIN_ORDER
from dpolicy.privacy.thresholds import weight_sum
from dpolicy.releases.regions import MAX_PARTITION_VALUES
from dpolicy.text.shapes import (
    INVALID,
    BooleanShape,
    ChoiceShape,
    ListShape,
    NameShape,
    NumberShape,
    RecordField,
    RecordShape,
    report_too_many,
    report_wrong_type,
)
from dpolicy.text.tagged_shapes import KeyedUnionShape
from dpolicy.text.yaml_reader import (
    ListNode,
    LocatedText,
    MapNode,
    Report,
    ScalarNode,
    Source,
    Span,
    TextNode,
)

#: More values of a label or partition than this are free text, or a slip.
MAX_VALUES = 20_000
#: Points of a function and orders of a curve: more are never drawn by hand.
MAX_POINTS = 1_000


#: Stands in for a name that has been reported; it is never looked up.
ALREADY_REPORTED = LocatedText("", Span(Source("", ""), 1, 1, 1, 1))

UNIT_NAMES = ListShape(NameShape(), "a list of units", least=1)


@dataclass(frozen=True, slots=True)
class _Months:
    """A number of months, such as `24 months`."""

    title: str = "a time such as `24 months`"

    def read(self, node: TextNode, report: Report) -> Any:
        said = _MONTHS.fullmatch(node.text) if isinstance(node, ScalarNode) else None
        return int(said[1]) if said else report_wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{_MONTHS.pattern}$"}


_MONTHS = re.compile("([1-9][0-9]{0,3}) months?")

COLLAPSE = RecordShape(
    "`collapse`",
    {
        "after": RecordField(_Months(), "how long ago a step must have ended", required=True),
        "into": RecordField(
            ChoiceShape(("month", "quarter", "half", "year"), "a period"),
            "the blocks that steps are kept in together",
            required=True,
        ),
    },
    lambda values, _: Collapse(values["after"], str(values["into"])),
)


@dataclass(frozen=True, slots=True)
class _AttributeShape:
    """`risk`, and a list of categories for each membership level, whatever those are called."""

    title: str = "an attribute"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.kind == "null":
            return Attribute()
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        risk, memberships = None, {}
        for key, child in node.entries:
            if key.text == "risk":
                said = NameShape().read(child, report)
                risk = ALREADY_REPORTED if said is INVALID else said
            else:
                said = _CATEGORIES.read(child, report)
                memberships[key.word] = () if said is INVALID else said
        return Attribute(risk, memberships)

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"risk": NameShape().schema()},
            "additionalProperties": _CATEGORIES.schema(),
        }


_CATEGORIES = ListShape(NameShape(), "a list of categories")
ATTRIBUTE = _AttributeShape()

_WHOLE = NumberShape(
    "a whole number",
    least=Fraction(-MAX_PARTITION_VALUES),
    most=Fraction(MAX_PARTITION_VALUES),
    whole=True,
)
_WHOSE = {
    "stable": RecordField(BooleanShape(), "whether a unit keeps its value for ever", default=True),
    "of": RecordField(NameShape(), "the unit that has a value: each of them one"),
}

PARTITION = KeyedUnionShape(
    "a partition",
    {
        "values": RecordShape(
            "a partition by values",
            {
                "values": RecordField(
                    ListShape(NameShape(), least=1, most=MAX_VALUES), required=True
                ),
                **_WHOSE,
            },
            lambda v, _: Partition(values=v["values"], stable=v["stable"], of=v["of"]),
        ),
        "from": RecordShape(
            "a partition by range",
            {
                "from": RecordField(_WHOLE, required=True),
                "to": RecordField(_WHOLE, required=True),
                **_WHOSE,
            },
            lambda v, _: Partition(None, v["from"], v["to"], v["stable"], v["of"]),
        ),
    },
)

_POINT = NumberShape("a number from 0 to 1,000,000", least=Fraction(0), most=Fraction(10**6))


@dataclass(frozen=True, slots=True)
class _Points:
    """Pairs [x, y] with x rising."""

    title: str = "a list of points [x, y]"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ListNode) or not node.items:
            return report_wrong_type(node, self.title, report)
        if report_too_many(len(node.items), MAX_POINTS, node, report):
            return INVALID
        points = [self._point(item, report) for item in node.items]
        if INVALID in points:
            return INVALID
        for (x, _), (following, _), item in zip(points, points[1:], node.items[1:], strict=False):
            if following <= x:
                report("P043", "the points must have rising x", item.span, "sort them by x")
                return INVALID
        return tuple(points)

    def _point(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ListNode) or len(node.items) != 2:
            return report_wrong_type(node, "a point [x, y]", report)
        x, y = (_POINT.read(item, report) for item in node.items)
        return INVALID if INVALID in (x, y) else (x, y)

    def schema(self) -> dict[str, Any]:
        pair = {"type": "array", "items": _POINT.schema(), "minItems": 2, "maxItems": 2}
        return {"type": "array", "items": pair, "minItems": 1}


POINTS = _Points()


_ORDER = NumberShape("an order from 1.01 to 1,000,000", least=MIN_ORDER, most=Fraction(10**6))


@dataclass(frozen=True, slots=True)
class _Orders:
    """The Rényi grid: orders whose weights leave enough δ for each."""

    title: str = "`default` or a list of orders"

    def read(self, node: TextNode, report: Report) -> Any:
        orders = ListShape(_ORDER, self.title, most=MAX_POINTS).read(node, report)
        if orders is INVALID:
            return INVALID
        grid = tuple(sorted(set(orders)))
        if (total := weight_sum(grid)) > 1:
            shown = f"the weights of these orders sum to {float(total):.3f}, above 1"
            help_ = "leave out small orders: one below 2 weighs more than 0.25"
            report("P045", shown, node.span, help_)
            return INVALID
        return grid

    def schema(self) -> dict[str, Any]:
        return ListShape(_ORDER, least=1).schema()


ORDERS = _Orders()


@dataclass(frozen=True, slots=True)
class _Renyi:
    """A map from orders to divergences."""

    title: str = "a map from orders to divergences"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, MapNode) or not node.entries:
            return report_wrong_type(node, self.title, report)
        if report_too_many(len(node.entries), MAX_POINTS, node, report):
            return INVALID
        pairs = [
            (_ORDER.read(_unquoted(key), report), _POINT.read(value, report))
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


def _unquoted(key: ScalarNode) -> ScalarNode:
    """JSON can write an order only as text."""
    number = key.text.replace(".", "", 1).isdigit()
    return ScalarNode(key.span, key.text, "number") if number and key.text.isascii() else key


RENYI = _Renyi()
