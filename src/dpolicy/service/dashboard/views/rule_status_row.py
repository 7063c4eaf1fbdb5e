"""One rule and what was spent on it → the line that tables show: budget, spent, left, share, place.

Shares are in the notion of the rule's own budget, as `dpolicy budgets` prints them. They are found
for all rules at once, so that the tightest are known quickly, and told for those that are shown.
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
from dpolicy.rules.rule import Rule

#: What each notion is written with.
NOTION_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ", "delta": "δ"}


@dataclass(frozen=True, slots=True)
class RuleKey:
    """What a rule is found by: its name, its unit, and whether it is for each release by itself."""

    name: str
    unit: str
    each_release: bool = False

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"rule": self.name, "unit": self.unit, "each-release": self.each_release}


@dataclass(frozen=True, slots=True)
class RuleStatusRow:
    """How a rule stands: `share` is what was used of its budget; None where that is no number."""

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
        """The number to stay under, if there is one."""
        return None if isinstance(self.budget, str) else _first(self.budget)

    @property
    def spent_amount(self) -> float | None:
        """The number that was spent; None if it is infinite."""
        return next(iter(self.spent.values()), None)

    @property
    def remaining(self) -> float | None:
        """What is left of the number, where there is one."""
        if self.limit is None or self.spent_amount is None:
            return None
        return max(0.0, self.limit - self.spent_amount)

    @property
    def notion_symbol(self) -> str:
        """What the number is written with."""
        notion = next(iter(self.spent), "")
        return NOTION_SYMBOLS.get(notion, notion)

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
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


def rule_status_row(now: RuleStatusTable, position: int) -> RuleStatusRow:
    """How one of the rules stands."""
    number = int(now.numbers[position])
    rule, row = now.section.compiled.rules[number], now.losses[position]
    share = float(used_shares(now, np.array([position]))[0])
    return status_row(
        now,
        rule,
        row,
        holds=bool(now.holds[position]),
        share=share,
        at=now.location(position),
    )


def status_row(
    now: RuleStatusTable,
    rule: Rule,
    row: LossArray,
    *,
    holds: bool,
    share: float,
    at: Mapping[str, str | int],
) -> RuleStatusRow:
    """A rule and a loss, for people."""
    frame = now.section.granularities.frames[now.section.granularities.frame_of[rule.number]]
    return RuleStatusRow(
        RuleKey(rule.name, rule.unit, rule.each_release),
        rule.policies,
        budget_to_json(rule.budget),
        now.section.formatter_for(rule.number)(row),
        None if np.isnan(share) else share,
        holds,
        at,
        None if frame.period is None else str(frame.period.kind.value),
    )


def used_shares(
    now: RuleStatusTable, positions: NDArray[np.intp] | None = None
) -> NDArray[np.float64]:
    """The share that each rule has used of its budget; not a number where it has no limit."""
    chosen = np.arange(len(now.numbers)) if positions is None else positions
    budgets = now.section.compiled.rules.budget_numbers[now.numbers[chosen]]
    found = np.full(len(chosen), np.nan)
    for number in np.unique(budgets).tolist():
        alike = budgets == number
        budget, readout = now.section.compiled.rules.budgets[number], now.section.formatters[number]
        found[alike] = used_share_of_budget(budget, readout, now.losses[chosen[alike]])
    return found


def used_share_of_budget(
    budget: Budget, readout: LossFormatter, rows: LossArray
) -> NDArray[np.float64]:
    """The share of one budget that each row uses."""
    spent = [figure.quanta(rows) / QUANTA_PER_UNIT for figure in readout.figures]
    match budget:
        case EpsilonDelta(epsilon=limit) | Zcdp(rho=limit):
            limits = [float(limit)]
        case Gdp(mu=mu):
            spent, limits = [np.sqrt(amounts) for amounts in spent], [float(mu)]
        case Renyi(orders=orders):
            limits = [float(value) for _, value in orders]
        case Unlimited():
            return np.full(len(rows), np.nan)
    used = [
        np.divide(amounts, most, out=np.where(amounts > 0, np.inf, 0.0), where=most > 0)
        for amounts, most in zip(spent, limits, strict=True)
    ]
    return np.asarray(np.maximum.reduce(used), dtype=np.float64)


def _first(budget: Mapping[str, Any]) -> float | None:
    value = next(iter(budget.values()), None)
    return float(value) if isinstance(value, int | float) else None
