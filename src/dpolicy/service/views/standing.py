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

from dpolicy.enforcement.governance import Standings
from dpolicy.enforcement.readout import Readout
from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp, as_json
from dpolicy.privacy.certificates import QUANTA_PER_UNIT
from dpolicy.privacy.rows import Rows
from dpolicy.releases.decision import Shown
from dpolicy.rules.rule import Rule

#: What each notion is written with.
SIGNS = {"epsilon": "ε", "rho": "ρ", "mu": "μ", "delta": "δ"}


@dataclass(frozen=True, slots=True)
class RuleName:
    """What a rule is found by: its name, its unit, and whether it is for each release by itself."""

    name: str
    unit: str
    each_release: bool = False

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"rule": self.name, "unit": self.unit, "each-release": self.each_release}


@dataclass(frozen=True, slots=True)
class Standing:
    """How a rule stands: `share` is what was used of its budget; None where that is no number."""

    rule: RuleName
    policies: tuple[str, ...]
    budget: Mapping[str, Any] | str
    spent: Shown
    share: float | None
    holds: bool
    at: Mapping[str, str | int]
    renews: str | None

    @property
    def limit(self) -> float | None:
        """The number to stay under, if there is one."""
        return None if isinstance(self.budget, str) else _first(self.budget)

    @property
    def used(self) -> float | None:
        """The number that was spent; None if it is infinite."""
        return next(iter(self.spent.values()), None)

    @property
    def left(self) -> float | None:
        """What is left of the number, where there is one."""
        if self.limit is None or self.used is None:
            return None
        return max(0.0, self.limit - self.used)

    @property
    def sign(self) -> str:
        """What the number is written with."""
        notion = next(iter(self.spent), "")
        return SIGNS.get(notion, notion)

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            **self.rule.as_json(),
            "policies": list(self.policies),
            "budget": self.budget,
            "spent": dict(self.spent),
            "left": self.left,
            "share": self.share,
            "holds": self.holds,
            "at": dict(self.at),
            "renews": self.renews,
        }


def standing(now: Standings, position: int) -> Standing:
    """How one of the rules stands."""
    number = int(now.numbers[position])
    rule, row = now.of.section.rules[number], now.rows[position]
    share = float(shares(now, np.array([position]))[0])
    return told(
        now,
        rule,
        row,
        holds=bool(now.held[position]),
        share=share,
        at=now.at(position),
    )


def told(
    now: Standings, rule: Rule, row: Rows, *, holds: bool, share: float, at: Mapping[str, str | int]
) -> Standing:
    """A rule and a loss, for people."""
    frame = now.of.layout.frames[now.of.layout.frame_of[rule.number]]
    return Standing(
        RuleName(rule.name, rule.unit, rule.each_release),
        rule.policies,
        as_json(rule.budget),
        now.of.readout_of(rule.number)(row),
        None if np.isnan(share) else share,
        holds,
        at,
        None if frame.period is None else str(frame.period.kind.value),
    )


def shares(now: Standings, positions: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
    """The share that each rule has used of its budget; not a number where it has no limit."""
    chosen = np.arange(len(now.numbers)) if positions is None else positions
    budgets = now.of.section.rules.budget_numbers[now.numbers[chosen]]
    found = np.full(len(chosen), np.nan)
    for number in np.unique(budgets).tolist():
        alike = budgets == number
        budget, readout = now.of.section.rules.budgets[number], now.of.readouts[number]
        found[alike] = share_of(budget, readout, now.rows[chosen[alike]])
    return found


def share_of(budget: Budget, readout: Readout, rows: Rows) -> NDArray[np.float64]:
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
