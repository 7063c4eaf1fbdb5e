"""Shadow prices: the utility that a round would gain from more budget of a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpolicy.allocation.problem.knapsack import AllocationProblem, Solution
from dpolicy.privacy.budget import budget_amount, budget_to_json
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class ShadowPrice:
    """Approximate utility that this round would gain from one more unit of a rule's ε, ρ or μ."""

    rule: Rule
    notion: str
    marginal_utility: float

    def as_json(self) -> dict[str, Any]:
        """Return the price as JSON values."""
        return {
            "rule": self.rule.name,
            "unit": self.rule.unit,
            "budget": budget_to_json(self.rule.budget),
            "notion": self.notion,
            "marginal-utility": self.marginal_utility,
        }


def shadow_prices(
    policy: CompiledPolicy, problem: AllocationProblem, solution: Solution
) -> tuple[ShadowPrice, ...]:
    """Return the approximate utility of one more unit of each rule's budget, highest first.

    The price of a row is the utility of doubling its remaining budget. One more unit of a budget of
    size s raises all thresholds of the rule by about 1/s of them; the thresholds of μ are squares
    and rise by about 2/s.
    """
    utilities: dict[int, float] = {}
    for row, price in zip(problem.rows, solution.prices.tolist(), strict=False):
        if price > 0 and row.remaining_share > 0:
            utilities[row.rule] = utilities.get(row.rule, 0.0) + price / row.remaining_share
    prices = []
    for number, utility in utilities.items():
        rule = policy.cumulative.rules[number]
        amount = budget_amount(rule.budget)
        if amount is not None and amount[1] > 0:
            notion, size = amount
            marginal_utility = utility * (2 if notion == "mu" else 1) / float(size)
            prices.append(ShadowPrice(rule, notion, marginal_utility))
    return tuple(sorted(prices, key=lambda price: -price.marginal_utility))
