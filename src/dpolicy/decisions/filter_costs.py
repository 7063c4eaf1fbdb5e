"""Filter costs: the cost of a release to the rules that it matches, as their filters count it.

A rule with an (ε, δ) budget divides δ among Rényi orders, so that later releases may depend on
earlier results. Its ε of a release alone is therefore above the best ε that is known for one
release, and differs between profiles (docs/releases.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpolicy.decisions.decide import RuleChecks, Verdict
from dpolicy.decisions.reasons import remaining_shares
from dpolicy.privacy.budget import EpsilonDelta, budget_to_json
from dpolicy.privacy.thresholds import Profile
from dpolicy.releases.decision import LOSS_DISTRIBUTION, DisplayedLoss
from dpolicy.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class FilterCost:
    """Cost of a release alone to one rule, and the number of rules with the same cost.

    `cost` is the `cost` of the reason that a decision gives for the rule. `profile` is None if the
    budget is not converted: its cost is then the same for every method. `method` is that of the
    reason.
    """

    rule: Rule
    cost: DisplayedLoss
    profile: Profile | None
    rule_count: int = 1
    method: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the cost as JSON."""
        return {
            "rule": self.rule.name,
            "unit": self.rule.unit,
            "rules": self.rule_count,
            "each-release": self.rule.each_release,
            "profile": None if self.profile is None else str(self.profile),
            "budget": budget_to_json(self.rule.budget),
            "cost": dict(self.cost),
            **({"method": self.method} if self.method else {}),
        }


def filter_costs(verdict: Verdict) -> tuple[FilterCost, ...]:
    """Return the distinct costs of a release to the rules that it matches, tightest rule first.

    Rules with the same unit, profile, notion, δ and cost are counted together.
    """
    distinct: dict[tuple[object, ...], FilterCost] = {}
    for checks in verdict.checks:
        shares = remaining_shares(checks)
        for position in np.lexsort((checks.rule_numbers, shares)).tolist():
            cost = _cost_to_rule(checks, position)
            same = distinct.setdefault(_comparison_key(cost), replace(cost, rule_count=0))
            distinct[_comparison_key(cost)] = replace(same, rule_count=same.rule_count + 1)
    return tuple(distinct.values())


def _cost_to_rule(checks: RuleChecks, position: int) -> FilterCost:
    number = int(checks.rule_numbers[position])
    rules = checks.section.compiled.rules
    rule = rules[number]
    is_converted = isinstance(rule.budget, EpsilonDelta) and rule.budget.delta > 0
    profile = rules.profiles[int(rules.budget_numbers[number])] if is_converted else None
    exact = checks.exact.get(position)
    if exact is not None:
        displayed = exact.display(checks.section.formatter_for(number)(exact.cost))
        return FilterCost(rule, displayed, profile, method=LOSS_DISTRIBUTION)
    return FilterCost(rule, checks.section.formatter_for(number)(checks.cost[position]), profile)


def _comparison_key(cost: FilterCost) -> tuple[object, ...]:
    rule = cost.rule
    delta = rule.budget.delta if isinstance(rule.budget, EpsilonDelta) else None
    amounts = tuple(cost.cost.items())
    return rule.unit, rule.each_release, cost.profile, delta, amounts, cost.method
