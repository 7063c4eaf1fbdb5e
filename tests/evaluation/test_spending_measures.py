"""Spending measures equal a plain sum over all locations, in every scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.evaluation.sample_workload import workload
from tests.reference import spending as reference

from dpolicy.allocation.simulation import RoundSchedule
from dpolicy.allocation.unlocking import CohortRotation
from dpolicy.balances.enforced_policy import enforce
from dpolicy.errors import OperationRejected
from dpolicy.evaluation.spending_measures import largest_spending
from dpolicy.evaluation.workload import SCHEDULE, Workload, policy_for_workload, resolve_arrivals

COHORTS = range(11, 20)

#: Scenario → rules, each with its scope as a Python predicate.
SCOPES: dict[str, dict[str, Callable[[Mapping[str, Any]], bool]]] = {
    "context": {"standard": lambda r: r["deployment"] == "standard", "any": lambda _: True},
    "scope": {
        "global": lambda _: True,
        "per-attribute[a2]": lambda r: "a2" in r["attributes"],
        "per-category[c0, member]": lambda r: "a0" in r["attributes"],
        "per-category[c0, strong]": lambda r: bool({"a0", "a1"} & {*r["attributes"]}),
        "per-category[c0, weak]": lambda _: True,
    },
    "time": {"global": lambda _: True, "each-month": lambda r: "a1" in r["attributes"]},
}


def rotation(schedule: RoundSchedule = SCHEDULE) -> CohortRotation:
    assert schedule.rotation is not None
    return schedule.rotation


@pytest.mark.parametrize("scenario", SCOPES)
@pytest.mark.parametrize("seed", range(4))
def test_spending_equals_the_reference(scenario: str, seed: int) -> None:
    requests = workload(scenario, seed)
    selected = Random(seed).sample(requests.requests, 40)
    spending = measure(requests, selected)
    for name, in_scope in SCOPES[scenario].items():
        month = name == "each-month"
        expected = reference.largest_epsilon(requests, selected, in_scope, COHORTS, by_month=month)
        assert spending[name] == pytest.approx(expected, abs=1e-9) and expected > 0, name


def test_a_missing_request_changes_the_result() -> None:
    requests = workload("context")
    expected = reference.largest_epsilon(requests, requests.requests, lambda _: True, COHORTS)
    assert measure(requests, requests.requests)["any"] == pytest.approx(expected, abs=1e-9)
    assert measure(requests, requests.requests[::2])["any"] < expected - 0.1


def measure(requests: Workload, selected: Any) -> dict[str, float]:
    policy = policy_for_workload(requests, 10)
    arrivals = resolve_arrivals(replace(requests, requests=tuple(selected)), policy)
    rules = [rule for rule, _ in policy.all_rules]
    return {
        rule.name: largest_spending(enforce(policy), rule, arrivals, rotation(), COHORTS)
        for rule in rules
    }


def test_no_request_spends_nothing() -> None:
    assert set(measure(workload("scope"), ()).values()) == {0.0}


def test_other_cohorts_spend_nothing() -> None:
    requests = workload("context")
    policy = policy_for_workload(requests, 10)
    rule = next(rule for rule, _ in policy.all_rules)
    arrivals = resolve_arrivals(requests, policy)
    assert largest_spending(enforce(policy), rule, arrivals, rotation(), range(25, 31)) == 0.0


def test_cohorts_must_be_a_partition() -> None:
    requests = workload("context")
    policy = policy_for_workload(requests, 10)
    rule = next(rule for rule, _ in policy.all_rules)
    with pytest.raises(OperationRejected, match="not a partition with a range"):
        largest_spending(
            enforce(policy),
            rule,
            resolve_arrivals(requests, policy),
            CohortRotation("team", 12),
            COHORTS,
        )
