"""Table row with the status of a rule: budget, spent and remaining amount, used share, location.

A share is in the notion of the rule's budget, as `dpolicy budgets` prints it. Shares are computed
for all rules at once, so that ranking is fast; rows are built only for the rules on a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.loss_display import LossFormatter
from dpolicy.pdp.rule_status import RuleStatusTable
from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp, budget_to_json
from dpolicy.privacy.certificates import QUANTA_PER_UNIT
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.decision import DisplayedLoss

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

    `share` is the used share of the budget, None if the budget is unlimited. `period` is the period
    after which the budget renews, None for lifetime budgets.
    """

    rule: RuleKey
    policies: tuple[str, ...]
    budget: Mapping[str, Any] | str
    spent: DisplayedLoss
    share: float | None
    holds: bool
    location: Mapping[str, str | int]
    period: str | None

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
        return max(0.0, self.limit - self.spent_amount)

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
            "share": self.share,
            "holds": self.holds,
            "at": dict(self.location),
            "renews": self.period,
        }


def build_rule_status_row(table: RuleStatusTable, position: int) -> RuleStatusRow:
    """Build the row of the rule at `position` of the table."""
    section, number = table.section, int(table.numbers[position])
    rule = section.compiled.rules[number]
    share = float(used_shares(table, np.array([position]))[0])
    period = section.granularities.for_rule(number).period
    return RuleStatusRow(
        RuleKey(rule.name, rule.unit, rule.each_release),
        rule.policies,
        budget_to_json(rule.budget),
        section.formatter_for(number)(table.losses[position]),
        None if np.isnan(share) else share,
        bool(table.holds[position]),
        table.location(position),
        None if period is None else str(period.kind.value),
    )


def used_shares(
    table: RuleStatusTable, positions: NDArray[np.intp] | None = None
) -> NDArray[np.float64]:
    """Return the used share of the budget of each rule; NaN for unlimited budgets.

    `positions` selects rules of the table; None selects all.
    """
    selected = np.arange(len(table.numbers)) if positions is None else positions
    compiled = table.section.compiled
    budget_numbers = compiled.rules.budget_numbers[table.numbers[selected]]
    shares = np.full(len(selected), np.nan)
    for number in np.unique(budget_numbers).tolist():
        same_budget = budget_numbers == number
        budget, formatter = compiled.rules.budgets[number], table.section.formatters[number]
        losses = table.losses[selected[same_budget]]
        shares[same_budget] = used_share_of_budget(budget, formatter, losses)
    return shares


def used_share_of_budget(
    budget: Budget, formatter: LossFormatter, losses: LossArray
) -> NDArray[np.float64]:
    """Return the share of one budget that each loss uses; for Rényi budgets, the largest share.

    The share is NaN for an unlimited budget. For a budget of 0 it is 0 or infinite.
    """
    spent = [figure.quanta(losses) / QUANTA_PER_UNIT for figure in formatter.figures]
    match budget:
        case EpsilonDelta(epsilon=limit) | Zcdp(rho=limit):
            limits = [float(limit)]
        case Gdp(mu=mu):
            spent, limits = [np.sqrt(amounts) for amounts in spent], [float(mu)]
        case Renyi(orders=orders):
            limits = [float(value) for _, value in orders]
        case Unlimited():
            return np.full(len(losses), np.nan)
    shares = [
        np.divide(amounts, limit, out=np.where(amounts > 0, np.inf, 0.0), where=limit > 0)
        for amounts, limit in zip(spent, limits, strict=True)
    ]
    return np.asarray(np.maximum.reduce(shares), dtype=np.float64)


def _first_number(budget: Mapping[str, Any]) -> float | None:
    value = next(iter(budget.values()), None)
    return float(value) if isinstance(value, int | float) else None
