"""Grammar of the `accounting` section."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpolicy.policy.accounting.tuning_grammar import TUNED_FOR
from dpolicy.policy.budget_grammar import DELTA, MAX_POINTS, ORDER
from dpolicy.policy.model import Collapse
from dpolicy.privacy.number_text import format_up
from dpolicy.privacy.thresholds import DEFAULT_ORDERS, weight_sum
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.text.shapes import (
    INVALID,
    ChoiceShape,
    KeywordOrShape,
    ListShape,
    NameShape,
    NumberShape,
    RecordField,
    RecordShape,
    report_wrong_type,
)
from dpolicy.text.yaml_reader import Report, ScalarNode, TextNode

_MONTHS = re.compile("([1-9][0-9]{0,3}) months?")

#: A percentage such as `25 %`, with at most as many digits as a number of the language.
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,15})?) ?%")

#: Replaces a δ that is missing because of an error, so that budgets are not reported for it.
_FALLBACK_DELTA = Fraction(1, 10**7)

RELATION = ChoiceShape(tuple(NeighbouringRelation), "a neighbouring relation")


@dataclass(frozen=True, slots=True)
class _MonthsShape:
    """Shape of a number of months, such as `24 months`."""

    title: str = "a duration such as `24 months`"

    def read(self, node: TextNode, report: Report) -> Any:
        match = _MONTHS.fullmatch(node.text) if isinstance(node, ScalarNode) else None
        return int(match[1]) if match else report_wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{_MONTHS.pattern}$"}


@dataclass(frozen=True, slots=True)
class _ShareShape:
    """Shape of a share below 1: a number such as 0.25, or a percentage such as `25 %`."""

    title: str = "a share of at least 0 and below 100 %"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ScalarNode) or node.kind == "invalid":
            return report_wrong_type(node, self.title, report)
        percent = _PERCENT.fullmatch(node.text) if node.kind == "text" else None
        if percent is None and node.kind != "number":
            return report_wrong_type(node, self.title, report, "write `25 %` or `0.25`")
        share = Fraction(percent[1]) / 100 if percent else node.number
        if not 0 <= share < 1:
            help_ = "write a share such as `25 %`; the orders need the rest of δ"
            report("P009", f"`{node.text[:40]}` is not {self.title}", node.span, help_)
            return INVALID
        return share

    def schema(self) -> dict[str, Any]:
        number = {"type": "number", "minimum": 0, "exclusiveMaximum": 1}
        percent = {"type": "string", "pattern": r"^[0-9]{1,2}(\.[0-9]{1,15})? ?%$"}
        return {"anyOf": [number, percent]}


COLLAPSE = RecordShape(
    "`collapse`",
    {
        "after": RecordField(
            _MonthsShape(),
            "age from which time steps are merged, such as `24 months`",
            required=True,
        ),
        "into": RecordField(
            ChoiceShape(("month", "quarter", "half", "year"), "a period"),
            "period of the merged time steps",
            required=True,
        ),
    },
    lambda values, _: Collapse(values["after"], str(values["into"])),
)


@dataclass(frozen=True, slots=True)
class _OrdersShape:
    """Shape of a Rényi grid: orders whose weights sum to at most 1, as a sorted tuple."""

    title: str = "`default` or a list of orders"

    def read(self, node: TextNode, report: Report) -> Any:
        orders = ListShape(ORDER, self.title, most=MAX_POINTS).read(node, report)
        if orders is INVALID:
            return INVALID
        grid = tuple(sorted(set(orders)))
        total = weight_sum(grid)
        if total > 1:
            message = f"the weights of these orders sum to {format_up(total, 4)}, above 1"
            help_ = "remove small orders; an order below 2 has a weight above 0.25"
            report("P045", message, node.span, help_)
            return INVALID
        return grid

    def schema(self) -> dict[str, Any]:
        return ListShape(ORDER, least=1).schema()


ACCOUNTING = RecordShape(
    "`accounting`",
    {
        "delta": RecordField(DELTA, "δ of every budget that states only ε"),
        "profile": RecordField(NameShape(), "method that turns (ε, δ) into Rényi thresholds"),
        "tuned-for": RecordField(
            TUNED_FOR, "typical mechanisms, which the shares of δ admit most of"
        ),
        "leaks": RecordField(_ShareShape(), "share of δ for stated δ, such as `25 %`"),
        "orders": RecordField(
            KeywordOrShape({"default": DEFAULT_ORDERS}, _OrdersShape()), "Rényi grid"
        ),
        "relation": RecordField(RELATION, "neighbouring relation of units that state none"),
        "require": RecordField(
            ChoiceShape(("additive",), "`additive`"), "reject mechanisms that are not additive"
        ),
        "uncovered": RecordField(
            ChoiceShape(("allow", "deny"), "`allow` or `deny`"),
            "decision for mechanisms in the scope of no rule",
        ),
        "max-rules": RecordField(
            NumberShape(
                "a whole number of rules", above=Fraction(0), most=Fraction(8_000_000), whole=True
            ),
            "maximum number of compiled rules",
        ),
        "collapse": RecordField(COLLAPSE, "merging of old time steps"),
    },
    lambda values, _: values,
    dict.fromkeys(
        (
            *("profile", "tuned-for", "leaks", "orders"),
            *("relation", "require", "uncovered", "collapse"),
        ),
        lambda _: None,
    )
    | {"max-rules": lambda _: None, "delta": lambda _: _FALLBACK_DELTA},
)

#: Replaces an `accounting` section that cannot be read.
UNREADABLE_ACCOUNTING = {**dict.fromkeys(ACCOUNTING.fields), "delta": _FALLBACK_DELTA}
