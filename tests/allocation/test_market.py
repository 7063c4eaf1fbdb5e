"""Prices carried from round to round: what they charge, where, and that they fade."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tests.allocation.worlds import candidate, points, small_policy
from tests.reference import market as naive

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


def paid_rows(draw: Random, rules: int) -> list[naive.Paid]:
    return [
        (draw.randrange(rules), draw.choice(points()), draw.uniform(0, 9), draw.uniform(0, 1))
        for _ in range(draw.randrange(5))
    ]


def after(market: CarriedPrices, paid: list[naive.Paid]) -> CarriedPrices:
    """A round whose rows had these prices, and one that had none."""
    none = np.empty(0, np.intp)
    amounts = np.empty((0, 1), np.int64)
    rows = [
        ConstraintRow(rule, none, none, amounts, amounts, False, np.array(block), rest)
        for rule, block, _, rest in [*paid, (0, points()[0], 0.0, 1.0)]
    ]
    problem = AllocationProblem((), np.empty(0), tuple(rows), np.empty(0, bool))
    prices = np.array([*(price for _, _, price, _ in paid), 0.0])
    return market.with_round(problem, Solution(np.empty(0, bool), 0.0, prices))


@pytest.mark.parametrize("seed", range(40))
def test_a_market_is_the_naive_one(seed: int) -> None:
    draw, policy = Random(seed), small_policy()
    of = enforce(policy).cumulative
    asking = [candidate(policy, draw, f"r{n}") for n in range(4)]
    cohorts = draw.choice([None, 1])
    rounds = [paid_rows(draw, len(of.compiled.rules)) for _ in range(draw.randrange(1, 30))]
    market = CarriedPrices.empty(len(of.full_extent))
    for paid in rounds:
        market = after(market, paid)
    found = market.opportunity_costs(
        of, demands_by_rule(of.granularities, asking), len(asking), cohorts
    )
    assert found == pytest.approx([naive.later(of, rounds, c, cohorts) for c in asking])


POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}}
schema:
  partitions: {country: {values: [CH, DE]}}
policies:
  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 1}}
"""


def test_what_was_dear_where_it_is_asked_is_kept_for_later() -> None:
    """A small worth in a place that others paid much for waits; in a place without demand not."""
    policy = compile_policy([Source("policy.yaml", POLICY)])

    def arrival(name: str, number: int, utility: float, country: str) -> Arrival:
        said = {"mechanism": {"kind": "declared", "epsilon": 0.3}, "where": {"country": [country]}}
        release = parse_request({"release": name, "mechanisms": [said]})
        mechanisms, _ = resolve_release(release, enforce(policy))
        return Arrival(name, number, utility, mechanisms)

    simulation = Simulation(policy, STRATEGIES["price"], RoundSchedule())
    crowd = [arrival(f"c{n}", 0, 100, "CH") for n in range(5)]
    first = simulation.run_round(0, crowd[:5])
    assert len(first.accepted) == 3
    fresh = Simulation(policy, STRATEGIES["price"], RoundSchedule())
    fresh.market = simulation.market
    second = fresh.run_round(1, [arrival("low-ch", 1, 1, "CH"), arrival("low-de", 1, 1, "DE")])
    assert second.accepted == ("low-de",)
    third = fresh.run_round(2, [arrival("high-ch", 2, 100, "CH")])
    assert third.accepted == ("high-ch",)
