"""Trials are reserved together, and no more trials run than were reserved."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.gated.pages import run_example
from tests.pdp.builders import GLOBAL, started

from dpolicy.errors import Denied, OperationRejected
from dpolicy.integrations.gate import Gate
from dpolicy.integrations.tuning import reserve_trials
from dpolicy.pdp.decision_point import DecisionPoint

SEARCHES = (
    "  - {name: searches, kind: custom, when: 'labels.stage == \"tuning\"', unit: user,"
    " budget: {epsilon: 1}}\n"
)
LAPLACE = {"kind": "laplace", "scale": 5}  # ε = 0.2


def start_point() -> DecisionPoint:
    return started(GLOBAL, SEARCHES)


def balances(point: DecisionPoint) -> dict[str, float | None]:
    return {b.rule.name: b.spent["epsilon"] for b in point.budgets()}


def approximately(**amounts: float) -> Any:
    return pytest.approx(amounts, abs=1e-9)


def test_trials_that_began_are_charged_and_labelled() -> None:
    point = start_point()
    gate = Gate(point, labels={"team": "ads"}, unit="user")
    with reserve_trials(gate, gate.mechanism_fields(LAPLACE), trials=5) as trials:
        assert balances(point) == approximately(**{"global": 1, "searches": 1})
        for expected in (1, 2, 3):
            with trials.trial() as number:
                assert number == expected
    assert balances(point) == approximately(**{"global": 0.6, "searches": 0.6})
    with gate.reserve("final", gate.mechanism_fields(LAPLACE)):
        pass
    assert balances(point) == approximately(**{"global": 0.8, "searches": 0.6})


def test_counts_multiply_and_units_are_restated() -> None:
    point = start_point()
    gate = Gate(point, unit="user-day")
    twice = gate.mechanism_fields({**LAPLACE, "count": 2}, also={"user": {"sensitivity": 0.5}})
    with reserve_trials(gate, twice, trials=4) as trials, trials.trial():
        assert balances(point) == approximately(**{"global": 0.8, "searches": 0.8})
    assert balances(point) == approximately(**{"global": 0.2, "searches": 0.2})


def test_more_trials_than_reserved_are_refused() -> None:
    gate = Gate(start_point(), unit="user")
    results = []
    with reserve_trials(gate, gate.mechanism_fields(LAPLACE), trials=2) as trials:
        for _ in range(2):
            with trials.trial():
                results.append("yes")
        with pytest.raises(OperationRejected, match="all 2 trials"), trials.trial():
            results.append("no")
    with pytest.raises(OperationRejected, match="the search is over"), trials.trial():
        results.append("no")
    assert results == ["yes", "yes"]


def test_threads_share_the_reserved_trials() -> None:
    point = start_point()
    gate = Gate(point, unit="user")

    def run_trial(_: int) -> bool:
        try:
            with trials.trial():
                return True
        except OperationRejected:
            return False

    with (
        reserve_trials(gate, gate.mechanism_fields(LAPLACE), trials=5) as trials,
        ThreadPoolExecutor(8) as pool,
    ):
        assert sum(pool.map(run_trial, range(50))) == 5
    assert balances(point) == approximately(**{"global": 1, "searches": 1})


def test_a_denied_search_runs_nothing() -> None:
    gate = Gate(start_point(), unit="user")
    with (
        pytest.raises(Denied) as denied,
        reserve_trials(gate, gate.mechanism_fields(LAPLACE), trials=6) as trials,
        trials.trial(),
    ):
        raise AssertionError("it ran")
    assert denied.value.decision.exceeded_rules == ("searches",)


def test_an_exception_charges_all_trials() -> None:
    point = start_point()
    gate = Gate(point, unit="user")
    with (
        pytest.raises(ZeroDivisionError),
        reserve_trials(gate, gate.mechanism_fields(LAPLACE), trials=5) as trials,
        trials.trial(),
    ):
        raise ZeroDivisionError
    assert balances(point) == approximately(**{"global": 1, "searches": 1})


def test_a_trial_that_failed_and_was_caught_counts() -> None:
    point = start_point()
    gate = Gate(point, unit="user")
    with reserve_trials(gate, gate.mechanism_fields(LAPLACE), trials=5) as trials:
        with pytest.raises(ZeroDivisionError), trials.trial():
            raise ZeroDivisionError
        with trials.trial():
            pass
    assert balances(point) == approximately(**{"global": 0.4, "searches": 0.4})


def test_a_search_without_trials_is_voided() -> None:
    point = start_point()
    gate = Gate(point, unit="user")
    with reserve_trials(gate, gate.mechanism_fields(LAPLACE), trials=5):
        pass
    (entry,) = point.entries.values()
    assert entry.status == "voided"


@pytest.mark.parametrize("trials", [0, -1, 2.5, True])
def test_an_invalid_number_of_trials_is_refused(trials: Any) -> None:
    gate = Gate(start_point(), unit="user")
    with (
        pytest.raises(OperationRejected, match="`trials` must be an integer of at least 1"),
        reserve_trials(gate, trials=trials),
    ):
        pass


def test_the_example_of_the_page() -> None:
    point = started(GLOBAL, head=HEAD)
    variables = run_example("tuning", point=point, scores={}, train=lambda rate: rate, score=abs)
    assert variables["model"] == 1.0
    assert [entry.status for entry in point.entries.values()] == ["committed", "committed"]


HEAD = """
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {relation: add-remove}}
schema:
  attributes: {page: {risk: low}}
  labels: {stage: {values: [final, tuning], default: final}}
"""
