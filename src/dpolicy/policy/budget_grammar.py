"""Grammar of budgets and budget functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpolicy.policy.model import BudgetStatement, Cel, Plus, Same, Through, Times
from dpolicy.privacy.certificates import MIN_ORDER
from dpolicy.text.shapes import (
    INVALID,
    ChoiceShape,
    NumberShape,
    RecordField,
    RecordShape,
    TextShape,
    report_too_many,
    report_wrong_type,
)
from dpolicy.text.tagged_shapes import KeyedUnionShape
from dpolicy.text.yaml_reader import ListNode, MapNode, Report, ScalarNode, Span, TextNode

#: Far above any meaningful budget; a misplaced decimal point often exceeds it.
MAX_BUDGET_NUMBER = Fraction(100_000)
#: Maximum number of points of a function and of orders of a Rényi curve.
MAX_POINTS = 1_000

AMOUNT = NumberShape(
    "a number from 0 to 100,000",
    least=Fraction(0),
    most=MAX_BUDGET_NUMBER,
    help="write `unlimited` for a budget without a bound",
)
DELTA = NumberShape("a δ of at least 0 and below 1", least=Fraction(0), below=Fraction(1))
FACTOR = NumberShape(
    "a factor above 0 and at most 100,000", above=Fraction(0), most=MAX_BUDGET_NUMBER
)
SHIFT = NumberShape(
    "a number from -100,000 to 100,000", least=-MAX_BUDGET_NUMBER, most=MAX_BUDGET_NUMBER
)
COORDINATE = NumberShape("a number from 0 to 1,000,000", least=Fraction(0), most=Fraction(10**6))
ORDER = NumberShape("an order from 1.01 to 1,000,000", least=MIN_ORDER, most=Fraction(10**6))


@dataclass(frozen=True, slots=True)
class _PointsShape:
    """Shape of a list of pairs [x, y] with increasing x."""

    title: str = "a list of points [x, y]"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ListNode) or not node.items:
            return report_wrong_type(node, self.title, report)
        if report_too_many(len(node.items), MAX_POINTS, node, report):
            return INVALID
        points = [self._read_point(item, report) for item in node.items]
        if INVALID in points:
            return INVALID
        for (x, _), (following, _), item in zip(points, points[1:], node.items[1:], strict=False):
            if following <= x:
                report("P043", "the points must have increasing x", item.span, "sort them by x")
                return INVALID
        return tuple(points)

    def _read_point(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ListNode) or len(node.items) != 2:
            return report_wrong_type(node, "a point [x, y]", report)
        x, y = (COORDINATE.read(item, report) for item in node.items)
        return INVALID if INVALID in (x, y) else (x, y)

    def schema(self) -> dict[str, Any]:
        pair = {"type": "array", "items": COORDINATE.schema(), "minItems": 2, "maxItems": 2}
        return {"type": "array", "items": pair, "minItems": 1}


@dataclass(frozen=True, slots=True)
class _RenyiShape:
    """Shape of a map from orders to divergences."""

    title: str = "a map from orders to divergences"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, MapNode) or not node.entries:
            return report_wrong_type(node, self.title, report)
        if report_too_many(len(node.entries), MAX_POINTS, node, report):
            return INVALID
        pairs = [
            (ORDER.read(_unquote_order(key), report), COORDINATE.read(value, report))
            for key, value in node.entries
        ]
        if any(INVALID in pair for pair in pairs):
            return INVALID
        if len({order for order, _ in pairs}) < len(pairs):
            report("P004", "duplicate order", node.span, "remove one of them")
            return INVALID
        return tuple(sorted(pairs))

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": COORDINATE.schema(), "minProperties": 1}


def _unquote_order(key: ScalarNode) -> ScalarNode:
    """Return a quoted order as a number: keys of JSON are always quoted."""
    number = key.text.replace(".", "", 1).isdigit()
    return ScalarNode(key.span, key.text, "number") if number and key.text.isascii() else key


def _budget_builder(**names: str) -> Callable[[dict[str, Any], Span], BudgetStatement]:
    """Return a function that builds a budget; `names` maps its fields to keys of the text."""

    def build(values: dict[str, Any], span: Span) -> BudgetStatement:
        return BudgetStatement(**{key: values[name] for key, name in names.items()}, span=span)

    return build


BUDGET = KeyedUnionShape(
    "a budget",
    {
        "epsilon": RecordShape(
            "an ε budget",
            {
                "epsilon": RecordField(AMOUNT, "ε", required=True),
                "delta": RecordField(DELTA, "δ; 0 is pure DP"),
            },
            _budget_builder(epsilon="epsilon", delta="delta"),
        ),
        "rho": RecordShape(
            "a ρ budget",
            {"rho": RecordField(AMOUNT, "ρ of zCDP", required=True)},
            _budget_builder(rho="rho"),
        ),
        "mu": RecordShape(
            "a μ budget",
            {"mu": RecordField(AMOUNT, "μ of GDP", required=True)},
            _budget_builder(mu="mu"),
        ),
        "renyi": RecordShape(
            "a Rényi budget",
            {
                "renyi": RecordField(
                    _RenyiShape(), "order → divergence; all must hold", required=True
                )
            },
            _budget_builder(renyi="renyi"),
        ),
    },
    words={"unlimited": BudgetStatement(unlimited=True)},
)

FUNCTION = KeyedUnionShape(
    "a budget function",
    {
        "times": RecordShape(
            "a `times` function",
            {"times": RecordField(FACTOR, "factor", required=True)},
            lambda v, span: Times(v["times"], span),
        ),
        "plus": RecordShape(
            "a `plus` function",
            {"plus": RecordField(SHIFT, "amount", required=True)},
            lambda v, span: Plus(v["plus"], span),
        ),
        "through": RecordShape(
            "a `through` function",
            {
                "through": RecordField(
                    _PointsShape(), "points of a piecewise linear function", required=True
                ),
                "beyond": RecordField(
                    ChoiceShape(("error", "extend"), "`error` or `extend`"),
                    "behaviour outside the points",
                ),
            },
            lambda v, span: Through(v["through"], v["beyond"] == "extend", span),
        ),
        "cel": RecordShape(
            "a `cel` function",
            {"cel": RecordField(TextShape(), "CEL expression over `budget`", required=True)},
            lambda v, span: Cel(v["cel"], span),
        ),
    },
    words={"same": Same()},
)
