"""Shapes that a plain record cannot say: memberships by level, partitions, points and curves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpolicy.language.model import Attribute, Collapse, Partition
from dpolicy.language.shape import (
    INVALID,
    Choice,
    Field,
    Flag,
    ListOf,
    Name,
    Number,
    Record,
    too_many,
    wrong_type,
)
from dpolicy.language.source import List, Map, Node, Report, Scalar, Source, Span, Word
from dpolicy.language.tagged import ByKey
from dpolicy.privacy.certificates import MIN_ORDER
from dpolicy.privacy.thresholds import weight_sum

#: More values of a label or partition than this are free text, or a slip.
MAX_VALUES = 20_000
#: Points of a function and orders of a curve: more are never drawn by hand.
MAX_POINTS = 1_000

#: Ranges of partitions are kept as boundaries, so this only refuses slips.
MAX_PARTITION = 10**12

#: Stands in for a name that has been reported; it is never looked up.
TOLD = Word("", Span(Source("", ""), 1, 1, 1, 1))

UNIT_NAMES = ListOf(Name(), "a list of units", least=1)


@dataclass(frozen=True, slots=True)
class _Months:
    """A number of months, such as `24 months`."""

    title: str = "a time such as `24 months`"

    def read(self, node: Node, report: Report) -> Any:
        said = _MONTHS.fullmatch(node.text) if isinstance(node, Scalar) else None
        return int(said[1]) if said else wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{_MONTHS.pattern}$"}


_MONTHS = re.compile("([1-9][0-9]{0,3}) months?")

COLLAPSE = Record(
    "`collapse`",
    {
        "after": Field(_Months(), "how long ago a step must have ended", required=True),
        "into": Field(
            Choice(("month", "quarter", "half", "year"), "a period"),
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

    def read(self, node: Node, report: Report) -> Any:
        if isinstance(node, Scalar) and node.kind == "null":
            return Attribute()
        if not isinstance(node, Map):
            return wrong_type(node, self.title, report)
        risk, memberships = None, {}
        for key, child in node.entries:
            if key.text == "risk":
                said = Name().read(child, report)
                risk = TOLD if said is INVALID else said
            else:
                said = _CATEGORIES.read(child, report)
                memberships[key.word] = () if said is INVALID else said
        return Attribute(risk, memberships)

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"risk": Name().schema()},
            "additionalProperties": _CATEGORIES.schema(),
        }


_CATEGORIES = ListOf(Name(), "a list of categories")
ATTRIBUTE = _AttributeShape()

_WHOLE = Number(
    "a whole number", least=Fraction(-MAX_PARTITION), most=Fraction(MAX_PARTITION), whole=True
)
_WHOSE = {
    "stable": Field(Flag(), "whether a unit keeps its value for ever", default=True),
    "of": Field(Name(), "the unit that has a value: each of them one"),
}

PARTITION = ByKey(
    "a partition",
    {
        "values": Record(
            "a partition by values",
            {
                "values": Field(ListOf(Name(), least=1, most=MAX_VALUES), required=True),
                **_WHOSE,
            },
            lambda v, _: Partition(values=v["values"], stable=v["stable"], of=v["of"]),
        ),
        "from": Record(
            "a partition by range",
            {
                "from": Field(_WHOLE, required=True),
                "to": Field(_WHOLE, required=True),
                **_WHOSE,
            },
            lambda v, _: Partition(None, v["from"], v["to"], v["stable"], v["of"]),
        ),
    },
)

_POINT = Number("a number from 0 to 1,000,000", least=Fraction(0), most=Fraction(10**6))


@dataclass(frozen=True, slots=True)
class _Points:
    """Pairs [x, y] with x rising."""

    title: str = "a list of points [x, y]"

    def read(self, node: Node, report: Report) -> Any:
        if not isinstance(node, List) or not node.items:
            return wrong_type(node, self.title, report)
        if too_many(len(node.items), MAX_POINTS, node, report):
            return INVALID
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


_ORDER = Number("an order from 1.01 to 1,000,000", least=MIN_ORDER, most=Fraction(10**6))


@dataclass(frozen=True, slots=True)
class _Orders:
    """The Rényi grid: orders whose weights leave enough δ for each."""

    title: str = "`default` or a list of orders"

    def read(self, node: Node, report: Report) -> Any:
        orders = ListOf(_ORDER, self.title, most=MAX_POINTS).read(node, report)
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
        return ListOf(_ORDER, least=1).schema()


ORDERS = _Orders()


@dataclass(frozen=True, slots=True)
class _Renyi:
    """A map from orders to divergences."""

    title: str = "a map from orders to divergences"

    def read(self, node: Node, report: Report) -> Any:
        if not isinstance(node, Map) or not node.entries:
            return wrong_type(node, self.title, report)
        if too_many(len(node.entries), MAX_POINTS, node, report):
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


def _unquoted(key: Scalar) -> Scalar:
    """JSON can write an order only as text."""
    number = key.text.replace(".", "", 1).isdigit()
    return Scalar(key.span, key.text, "number") if number and key.text.isascii() else key


RENYI = _Renyi()
