"""Small workloads of the evaluation: policies per total budget, and requests as arrivals."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpolicy.allocation.problem.candidates import make_candidate
from dpolicy.allocation.simulation import Simulation, restrict_axis
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.balances.enforced_policy import enforce
from dpolicy.decisions.decide import decide
from dpolicy.evaluation.workload import (
    SCHEDULE,
    TOTALS,
    Workload,
    load_workload,
    policy_for_workload,
    resolve_arrivals,
)
from dpolicy.evaluation.workload_generator import generate_workload

ORDERS = [1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 16, 32, 64, 1e6, 1e10]


def request_document(number: int, extra: dict[str, int]) -> dict[str, Any]:
    default = {
        "id": number,
        "round": 11 + number // 4,
        "mechanism": number % 2,
        "ranges": [[0, 900], [200_000, 204_799]] if number % 3 else [[500, 1500]],
        "utility": 10 + number,
        "attributes": ["a0", "a1"] if number % 2 else ["a0"],
        "deployment": "standard" if number % 4 else "black-box",
    }
    return {**default, **extra}


@pytest.fixture(params=["context", "scope", "time"])
def workload(request: pytest.FixtureRequest, tmp_path: Path) -> Workload:
    month = {"month": 103} if request.param == "time" else {}
    scoped = request.param == "scope"
    members = {"member": ["c0"]} if scoped else {}
    document = {
        "scenario": request.param,
        "orders": ORDERS,
        "categories": {"c0": {"risk": "high"}} if scoped else {},
        "attributes": {"a0": {"risk": "low", **members}, "a1": {"risk": "high", **members}},
        "mechanisms": [{"renyi": [0.01 * order for order in ORDERS]}, {"renyi": [0.2] * 14}],
        "requests": [request_document(n, month) for n in range(12)],
    }
    file = tmp_path / "small.json.gz"
    file.write_bytes(gzip.compress(json.dumps(document).encode()))
    return load_workload(file)


@pytest.mark.parametrize("total", TOTALS)
def test_a_policy_for_every_total(workload: Workload, total: int) -> None:
    for as_run in (True, False):
        policy = policy_for_workload(workload, total, as_run=as_run)
        rules = {"context": 2, "scope": 6, "time": 2}
        assert policy.rule_count == rules[workload.scenario]
    assert policy_for_workload(workload, total, baseline=True).rule_count == 1


def test_requests_arrive_and_rounds_stay_within_budgets(workload: Workload) -> None:
    policy = policy_for_workload(workload, 3)
    arrivals = resolve_arrivals(workload, policy)
    assert [arrival.round for arrival in arrivals] == [11 + n // 4 for n in range(12)]
    wrapping = arrivals[1].mechanisms[0].region
    assert wrapping is not None and len(wrapping.boxes) == 2
    simulation = Simulation(policy, STRATEGIES["first-come"], SCHEDULE)
    outcomes = list(simulation.run(arrivals, range(11, 14)))
    assert 0 < sum(len(outcome.selected) for outcome in outcomes) < 12
    section = enforce(policy).cumulative
    assert simulation.spent is not None
    for rule, functions in simulation.spent.by_rule.items():
        bound = section.bounds_for(np.array([rule]))
        for row in (row for function in functions for row in function.steps.spent.T):
            assert bound.are_within(row[np.newaxis]).all()


def test_a_wrapping_range_is_charged_once(workload: Workload) -> None:
    policy = policy_for_workload(workload, 20)
    arrivals = resolve_arrivals(workload, policy)[1:2]
    simulation = Simulation(policy, STRATEGIES["first-come"], SCHEDULE)
    list(simulation.run(arrivals, [11]))
    assert simulation.spent is not None
    rule = next(iter(simulation.spent.by_rule))  # a rule for users: all days are one block
    losses = {
        slot: simulation.spent.loss_at(rule, (slot, 11, 735_000)).max()
        for slot in (0, 900, 901, 199_999, 200_000, 204_799)
    }
    assert losses[0] == losses[900] == losses[200_000] == losses[204_799] > 0
    assert losses[901] == losses[199_999] == 0


@pytest.mark.parametrize("scenario", ["context", "scope", "time"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_selected_requests_are_allowed_one_after_the_other(scenario: str, strategy: str) -> None:
    """`decide` allows all selected requests of a round, on fully unlocked budgets."""
    workload = generate_workload(scenario, 7)
    policy = policy_for_workload(workload, 3)
    enforced, rotation = enforce(policy), SCHEDULE.rotation
    section = enforced.cumulative
    assert rotation is not None
    arrivals = {
        a.id: a for a in resolve_arrivals(workload, policy) if a.round == 11 and int(a.id) < 80
    }
    simulation = Simulation(policy, STRATEGIES[strategy], SCHEDULE)
    outcome = simulation.run_round(11, list(arrivals.values()))
    assert 0 < len(outcome.selected) < len(arrivals)
    balances, active = section.empty_balances(), rotation.active_cohorts(11)
    for release in outcome.selected:
        mechanisms = [
            replace(m, region=restrict_axis(m.region, section.full_extent, 1, active))
            for m in arrivals[release].mechanisms
        ]
        assert decide(enforced, balances, mechanisms).allowed
        for charge in make_candidate(enforced, release, 1, mechanisms).charges:
            balances.add(charge, 1)


def test_budgets_of_s1_as_run_and_as_written() -> None:
    workload = Workload("context", (), {}, {}, (), ())
    budgets = {
        True: "1.7 3, 1.83 4.9, 1.9 7, 2.0 9.2857, 2.25 15, 2.5 20",
        False: "1.7 3, 1.8 5, 1.9 7, 2.0 10, 2.3 15, 2.5 20",
    }
    for as_run, text in budgets.items():
        pairs = [tuple(map(Fraction, pair.split())) for pair in text.split(", ")]
        for total, expected in zip(TOTALS, pairs, strict=True):
            rules = policy_for_workload(workload, total, as_run=as_run).rules
            assert tuple(getattr(rule.budget, "epsilon", None) for rule in rules) == expected
