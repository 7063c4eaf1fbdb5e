"""Prices carried from round to round: opportunity costs per block, and decay."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tests.allocation.sample_rounds import candidate, points, small_policy
from tests.reference import carried_prices as reference

from dpolicy.allocation.carried_prices import CarriedPrices
from dpolicy.allocation.problem.candidates import demands_by_rule
from dpolicy.allocation.problem.knapsack import AllocationProblem, ConstraintRow, Solution
from dpolicy.allocation.simulation import Arrival, RoundSchedule, Simulation
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.balances.enforced_policy import enforce
from dpolicy.decisions.resolution import resolve_release
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source


def random_prices(draw: Random, rules: int) -> list[reference.Paid]:
    return [
        (draw.randrange(rules), draw.choice(points()), draw.uniform(0, 9), draw.uniform(0, 1))
        for _ in range(draw.randrange(5))
    ]


def add_round(prices: CarriedPrices, paid: list[reference.Paid]) -> CarriedPrices:
    """Add a round with these prices, and one row with price 0."""
    none = np.empty(0, np.intp)
    amounts = np.empty((0, 1), np.int64)
    rows = [
        ConstraintRow(rule, none, none, amounts, amounts, False, np.array(block), remaining_share)
        for rule, block, _, remaining_share in [*paid, (0, points()[0], 0.0, 1.0)]
    ]
    problem = AllocationProblem((), np.empty(0), tuple(rows), np.empty(0, bool))
    row_prices = np.array([*(price for _, _, price, _ in paid), 0.0])
    return prices.with_round(problem, Solution(np.empty(0, bool), 0.0, row_prices))


@pytest.mark.parametrize("seed", range(40))
def test_opportunity_costs_match_the_reference(seed: int) -> None:
    draw, policy = Random(seed), small_policy()
    section = enforce(policy).cumulative
    candidates = [candidate(policy, draw, f"r{n}") for n in range(4)]
    cohort_axis = draw.choice([None, 1])
    rounds = [
        random_prices(draw, len(section.compiled.rules)) for _ in range(draw.randrange(1, 30))
    ]
    prices = CarriedPrices.empty(len(section.full_extent))
    for paid in rounds:
        prices = add_round(prices, paid)
    costs = prices.opportunity_costs(
        section, demands_by_rule(section.granularities, candidates), len(candidates), cohort_axis
    )
    assert costs == pytest.approx(
        [reference.opportunity_cost(section, rounds, c, cohort_axis) for c in candidates]
    )


POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}}
schema:
  partitions: {country: {values: [CH, DE]}}
policies:
  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 1}}
"""


def test_price_keeps_expensive_budget_for_later_rounds() -> None:
    """A request of low utility is selected only in a block without prices."""
    policy = compile_policy([Source("policy.yaml", POLICY)])

    def arrival(name: str, number: int, utility: float, country: str) -> Arrival:
        mechanism = {
            "mechanism": {"kind": "declared", "epsilon": 0.3},
            "where": {"country": [country]},
        }
        release = parse_request({"release": name, "mechanisms": [mechanism]})
        mechanisms, _ = resolve_release(release, enforce(policy))
        return Arrival(name, number, utility, mechanisms)

    simulation = Simulation(policy, STRATEGIES["price"], RoundSchedule())
    crowd = [arrival(f"c{n}", 0, 100, "CH") for n in range(5)]
    first = simulation.run_round(0, crowd[:5])
    assert len(first.selected) == 3
    fresh = Simulation(policy, STRATEGIES["price"], RoundSchedule())
    fresh.carried_prices = simulation.carried_prices
    second = fresh.run_round(1, [arrival("low-ch", 1, 1, "CH"), arrival("low-de", 1, 1, "DE")])
    assert second.selected == ("low-de",)
    third = fresh.run_round(2, [arrival("high-ch", 2, 100, "CH")])
    assert third.selected == ("high-ch",)
