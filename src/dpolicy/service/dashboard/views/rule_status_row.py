"""Table row with the status of a rule: budget, spent and remaining amount, used share, location.

The used share is the larger of two: in the notion of the rule's budget, and of the part of δ that
is kept for stated leaks, as `dpolicy budgets` prints them. Shares are computed for all rules at
once, so that ranking is fast; rows are built only for the rules on a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite, isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpolicy.pdp.rule_status import RuleStatusTable
from dpolicy.privacy.budget import budget_to_json
from dpolicy.privacy.cost_report import round_down_to_printed_float
from dpolicy.releases.decision import DisplayedLoss, stated_delta
from dpolicy.releases.texts.stated_delta import spent_delta_text

#: Symbol of each notion.
NOTION_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ", "delta": "δ"}


@dataclass(frozen=True, slots=True)
class RuleKey:
    """Key of a rule: name, unit, and whether it is a per-release rule."""

    name: str
    unit: str
    each_release: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"rule": self.name, "unit": self.unit, "each-release": self.each_release}


@dataclass(frozen=True, slots=True)
class RuleStatusRow:
    """Status of a rule at its most used location.

    `share` is the used share of the budget, None if the budget is unlimited: the larger of
    `loss_share` and `delta_share`. `period` is the period after which the budget renews, None for
    lifetime budgets. `delta_limit` is the limit of stated δ, None without one. `binding` is the
    quantity that is exceeded or most used: the notion of the budget, `delta` or `both`.
    """

    rule: RuleKey
    policies: tuple[str, ...]
    budget: Mapping[str, Any] | str
    spent: DisplayedLoss
    share: float | None
    holds: bool
    location: Mapping[str, str | int]
    period: str | None
    loss_share: float | None = None
    delta_share: float | None = None
    delta_limit: float | None = None
    binding: str | None = None

    @property
    def exceeds_loss(self) -> bool:
        """Return whether the budget is exceeded in its own notion."""
        return not self.holds and self.binding != "delta"

    @property
    def exceeds_delta(self) -> bool:
        """Return whether the stated δ exceed their limit."""
        return not self.holds and self.binding in ("delta", "both")

    @property
    def delta_spent(self) -> float:
        """Return the sum of stated δ."""
        return stated_delta(self.spent)

    @property
    def delta_text(self) -> str | None:
        """Return the use of the stated δ as text; None if no δ is stated."""
        return spent_delta_text(self.delta_spent, self.delta_limit, self.budget)

    @property
    def delta_remaining(self) -> float | None:
        """Return what is left of the limit of stated δ, at least 0; None without a limit."""
        return None if self.delta_limit is None else _subtract(self.delta_limit, self.delta_spent)

    @property
    def binding_symbol(self) -> str:
        """Return the symbol of the quantity that is exceeded or most used."""
        if self.binding == "both":
            return f"{self.notion_symbol} and δ"
        return "δ" if self.binding == "delta" else self.notion_symbol

    @property
    def limit(self) -> float | None:
        """Return the budget as one number; None if it is unlimited or has several orders."""
        return None if isinstance(self.budget, str) else _first_number(self.budget)

    @property
    def spent_amount(self) -> float | None:
        """Return the spent amount; None if it is infinite."""
        return next(iter(self.spent.values()), None)

    @property
    def remaining(self) -> float | None:
        """Return the limit minus the spent amount, at least 0; None if either is None."""
        if self.limit is None or self.spent_amount is None:
            return None
        return _subtract(self.limit, self.spent_amount)

    @property
    def notion_symbol(self) -> str:
        """Return the symbol of the notion of the budget."""
        notion = next(iter(self.spent), "")
        return NOTION_SYMBOLS.get(notion, notion)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **self.rule.as_json(),
            "policies": list(self.policies),
            "budget": self.budget,
            "spent": dict(self.spent),
            "left": self.remaining,
            "share": finite_share(self.share),
            "loss-share": finite_share(self.loss_share),
            "delta": {
                "spent": self.delta_spent,
                "limit": self.delta_limit,
                "left": self.delta_remaining,
                "share": finite_share(self.delta_share),
            },
            "binding": self.binding,
            "holds": self.holds,
            "at": dict(self.location),
            "renews": self.period,
        }


def _subtract(limit: float, spent: float) -> float:
    """Return what is left of a limit, at least 0 and rounded down; floats are their decimals."""
    left = Fraction(repr(float(limit))) - Fraction(repr(float(spent)))
    return max(0.0, round_down_to_printed_float(left))


def build_rule_status_row(table: RuleStatusTable, position: int) -> RuleStatusRow:
    """Build the row of the rule at `position` of the table."""
    section, number = table.section, int(table.numbers[position])
    rule = section.compiled.rules[number]
    row, formatter = table.losses[position], section.formatter_for(number)
    rows = row[np.newaxis]
    period = section.granularities.for_rule(number).period
    return RuleStatusRow(
        RuleKey(rule.name, rule.unit, rule.each_release),
        rule.policies,
        budget_to_json(rule.budget),
        formatter(row),
        known_share(formatter.used_shares(rows)[0]),
        bool(table.holds[position]),
        table.location(position),
        None if period is None else str(period.kind.value),
        known_share(formatter.loss_shares(rows)[0]),
        known_share(formatter.delta_shares(rows)[0]),
        formatter.displayed_delta_limit,
        section.binding_quantity(number, row),
    )


def used_shares(table: RuleStatusTable) -> NDArray[np.float64]:
    """Return the used share of the budget of each rule; NaN for unlimited budgets."""
    budget_numbers = table.section.compiled.rules.budget_numbers[table.numbers]
    shares = np.full(len(table.numbers), np.nan)
    for number in np.unique(budget_numbers).tolist():
        same_budget = budget_numbers == number
        formatter = table.section.formatters[number]
        shares[same_budget] = formatter.used_shares(table.losses[same_budget])
    return shares


def finite_share(share: float | None) -> float | None:
    """Return a share for JSON: None if it is not a finite number."""
    return share if share is not None and isfinite(share) else None


def known_share(share: float) -> float | None:
    """Return a share of an array; None for NaN, the share of an unlimited budget."""
    return None if isnan(share) else float(share)


def _first_number(budget: Mapping[str, Any]) -> float | None:
    value = next(iter(budget.values()), None)
    return float(value) if isinstance(value, int | float) else None
