"""Generated workloads: reproducible, with the distributions and the format of the paper's."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from dpolicy.allocation.simulation import Simulation
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.errors import OperationRejected
from dpolicy.evaluation.workload import (
    ROUNDS,
    SCHEDULE,
    Workload,
    load_workload,
    policy_for_workload,
    resolve_arrivals,
)
from dpolicy.evaluation.workload_generator import (
    LEARNING,
    ORDERS,
    SHARES,
    SLOTS,
    generate_workload,
    mechanisms,
    workload_document,
)

SCENARIOS = ("context", "scope", "time")

#: Rényi values at orders 2, 8 and 64 from the workload files of the paper's artefact (seed 42), to
#: five digits, for the curves that are tight in these files: unsampled ones, Gaussian and Laplace.
PUBLISHED: dict[tuple[str, str, float], tuple[float, float, float]] = {
    ("gaussian", "low", 0.25): (6.5322e-06, 2.6132e-05, 2.0928e-04),
    ("gaussian", "high", 1): (1.9102e-02, 7.6408e-02, 6.1126e-01),
    ("laplace", "mid", 0.25): (6.0550e-04, 2.4180e-03, 1.4919e-02),
    ("laplace", "high", 1): (5.6564e-02, 1.6311e-01, 2.3912e-01),
    ("sparse-vector", "low", 1): (9.9996e-05, 3.9962e-04, 3.0056e-03),
    ("sparse-vector", "high", 1): (6.0932e-02, 1.7104e-01, 2.3920e-01),
    ("randomized-response", "mid", 1): (9.9592e-03, 3.6719e-02, 8.9774e-02),
    ("dp-sgd", "low", 1): (9.2037e-05, 3.6819e-04, 2.9485e-03),
    ("dp-sgd", "high", 1): (1.0557e-02, 4.2848e-02, 5.8902e03),
    ("pate", "mid", 0.25): (9.4227e-05, 3.7755e-04, 3.0693e-03),
    ("pate", "low", 1): (1.0451e-04, 4.1804e-04, 3.3443e-03),
}

#: Curves that are loose in the same files; generated curves may only be lower.
LOOSE: dict[tuple[str, str, float], tuple[float, float, float]] = {
    ("sparse-vector", "high", 0.25): (3.9189e-03, 2.5309e-02, 6.0544e-02),
    ("randomized-response", "low", 0.25): (6.2429e-06, 4.0811e-05, 2.2417e-04),
    ("dp-sgd", "mid", 0.25): (8.1088e-05, 5.3199e-04, 2.9826e-03),
}


@pytest.fixture(scope="module", params=SCENARIOS)
def workload(request: pytest.FixtureRequest) -> Workload:
    return generate_workload(request.param, 1)


@pytest.fixture(scope="module")
def scope() -> Workload:
    return generate_workload("scope", 2)


def request_mechanism(request: Any) -> Any:
    return mechanisms()[request["mechanism"]]


def slots(request: Any) -> int:
    return sum(high - low + 1 for low, high in request["ranges"])


def near(count: int, total: int, share: float) -> bool:
    """Return whether a count is within five standard deviations of its binomial mean."""
    return abs(count - share * total) < 5 * math.sqrt(total * share * (1 - share))


def test_a_seed_gives_the_same_bytes(workload: Workload) -> None:
    first, second = (json.dumps(workload_document(workload.scenario, 1)) for _ in range(2))
    assert first == second
    assert json.dumps(workload_document(workload.scenario, 3)) != first


def test_a_seed_gives_the_recorded_request() -> None:
    assert workload_document("scope", 0)["requests"][100] == {
        "id": 100,
        "round": 11,
        "mechanism": 33,
        "ranges": [[0, 33201], [114003, 204799]],
        "utility": 47,
        "attributes": ["a46", "a27", "a44", "a7", "a0", "a18"],
        "deployment": "standard",
    }


def test_scenarios_share_their_requests() -> None:
    shared = ("id", "round", "mechanism", "ranges", "utility")
    first, second, third = (
        [[r[k] for k in shared] for r in generate_workload(s, 4).requests] for s in SCENARIOS
    )
    assert first == second == third


def test_an_unknown_scenario_is_rejected() -> None:
    with pytest.raises(OperationRejected, match="unknown scenario `space`"):
        workload_document("space", 0)


@pytest.mark.parametrize("key", PUBLISHED)
def test_curves_equal_those_of_the_files(key: tuple[str, str, float]) -> None:
    assert values(key) == pytest.approx(PUBLISHED[key], rel=0.02)


@pytest.mark.parametrize("key", LOOSE)
def test_curves_are_tighter_where_those_of_the_files_are_loose(
    key: tuple[str, str, float],
) -> None:
    for ours, theirs in zip(values(key), LOOSE[key], strict=True):
        assert 0.5 * theirs < ours < 1.01 * theirs


def values(key: tuple[str, str, float]) -> tuple[float, ...]:
    (curve,) = (
        fields["renyi"]
        for fields in mechanisms()
        if (fields["name"], fields["level"], fields["sampling"]) == key
    )
    return tuple(curve[ORDERS.index(order)] for order in (2, 8, 64))


def test_36_increasing_curves() -> None:
    assert len(mechanisms()) == 36
    for fields in mechanisms():
        assert fields["renyi"] == sorted(fields["renyi"]) and fields["renyi"][0] > 0


def test_arrivals_are_poisson(workload: Workload) -> None:
    counts = Counter(request["round"] for request in workload.requests)
    assert sorted(counts) == list(ROUNDS)
    assert all(abs(count - 504) < 5 * math.sqrt(504) for count in counts.values())
    assert abs(len(workload.requests) - 10_080) < 5 * math.sqrt(10_080)
    spread = mean((count - 504) ** 2 for count in counts.values()) / 504
    assert 0.3 < spread < 2.5
    assert [r["id"] for r in workload.requests] == list(range(len(workload.requests)))


def test_mechanisms_are_in_equal_mix(workload: Workload) -> None:
    counts = Counter(request["mechanism"] for request in workload.requests)
    assert all(near(counts[n], len(workload.requests), 1 / 36) for n in range(36))


@pytest.mark.parametrize("name", SHARES)
def test_shares_of_the_slots(name: str) -> None:
    a, b = SHARES[name]
    requests = generate_workload("time", 1).requests
    shares = [slots(r) / SLOTS for r in requests if mechanism_name(r) == name]
    variance = a * b / ((a + b) ** 2 * (a + b + 1))
    assert abs(mean(shares) - a / (a + b)) < 5 * math.sqrt(variance / len(shares))
    assert mean((x - a / (a + b)) ** 2 for x in shares) == pytest.approx(variance, rel=0.2)


def mechanism_name(request: Any) -> str:
    return str(request_mechanism(request)["name"])


def test_runs_of_slots_wrap(workload: Workload) -> None:
    for request in workload.requests:
        ranges = request["ranges"]
        assert all(0 <= low <= high < SLOTS for low, high in ranges)
        if len(ranges) == 2:
            assert ranges[0][0] == 0 and ranges[1][1] == SLOTS - 1
            assert ranges[0][1] + 1 < ranges[1][0]
    # A run with a uniform centre wraps with the probability of its share: 0.42 on average.
    wrapping = sum(len(request["ranges"]) == 2 for request in workload.requests)
    assert near(wrapping, len(workload.requests), (1 / 11 + 2 / 3 + 1 / 2) / 3)


def test_utilities(workload: Workload) -> None:
    utilities = [request["utility"] for request in workload.requests]
    assert all(isinstance(utility, int) and utility >= 1 for utility in utilities)
    assert 999 <= mean(utilities) <= 1000
    # In the files the minimum is 15 (43 % of the requests), the maximum 8,847 to 8,924.
    assert min(utilities) in (14, 15, 16) and 8_000 < max(utilities) < 10_000
    assert 0.40 < utilities.count(min(utilities)) / len(utilities) < 0.46
    by_level = {
        level: mean(
            r["utility"] for r in workload.requests if request_mechanism(r)["level"] == level
        )
        for level in ("low", "mid", "high")
    }
    assert by_level["low"] < by_level["mid"] / 5 < by_level["high"] / 50
    by_rate = {
        rate: mean(
            r["utility"] for r in workload.requests if request_mechanism(r)["sampling"] == rate
        )
        for rate in (0.25, 1)
    }
    assert by_rate[1] / by_rate[0.25] == pytest.approx(4, rel=0.2)


def test_labels_of_contexts() -> None:
    requests = generate_workload("context", 1).requests
    learning = [r["deployment"] for r in requests if mechanism_name(r) in LEARNING]
    assert near(learning.count("black-box"), len(learning), 0.8)
    assert {r["deployment"] for r in requests if mechanism_name(r) not in LEARNING} == {"standard"}


def test_the_schema_of_scopes(scope: Workload) -> None:
    risks = Counter(properties["risk"] for properties in scope.attributes.values())
    assert len(scope.attributes) == 150 and len(scope.categories) == 10
    assert all(near(risks[r], 150, s) for r, s in (("low", 0.8), ("medium", 0.1), ("high", 0.1)))
    levels = ("member", "strong", "weak")
    sizes = {k: [len(f.get(k, ())) for f in scope.attributes.values()] for k in levels}
    assert set(sizes["member"]) == {1}
    assert 1.9 < mean(map(sum, zip(*sizes.values(), strict=True))) < 3.0
    assert 0.5 < sum(sizes["strong"]) / sum(sizes["weak"]) < 2
    for properties in scope.attributes.values():
        categories = [category for level in levels for category in properties.get(level, ())]
        assert len(categories) == len(set(categories)) and set(categories) <= set(scope.categories)


def test_attributes_of_scopes(scope: Workload) -> None:
    attribute_lists = [request["attributes"] for request in scope.requests]
    assert all(len(set(names)) == len(names) for names in attribute_lists)
    for size in (1, 2, 3, 5):
        share = 0.25 * 0.75 ** (size - 1)
        assert near(
            sum(len(names) == size for names in attribute_lists), len(attribute_lists), share
        )
    assert 3.8 < mean(map(len, attribute_lists)) < 4.2
    # Each risk level has an attribute of rank 1; the second low-risk one has a weight of 0.45.
    first = Counter(names[0] for names in attribute_lists)
    heads = {
        risk: [name for name, properties in scope.attributes.items() if properties["risk"] == risk][
            :2
        ]
        for risk in ("low", "medium", "high")
    }
    counts = [first[names[0]] for names in heads.values()]
    assert max(counts) < 1.2 * min(counts)
    assert {name for name, _ in first.most_common(3)} == {names[0] for names in heads.values()}
    assert 0.35 < first[heads["low"][1]] / first[heads["low"][0]] < 0.55


def test_months() -> None:
    requests = generate_workload("time", 1).requests
    latest = {round_: 100 + -(-(round_ + 2) // 4) for round_ in ROUNDS}
    counts = Counter(r["month"] - latest[r["round"]] for r in requests)
    assert sorted(counts) == list(range(-4, 3))
    for month, count in counts.items():
        assert near(count, len(requests), 1 / 9 if month else 1 / 3)
    timed = [r["attributes"] for r in requests]
    assert near(timed.count(["a0", "a1"]), len(timed), 0.5)
    assert timed.count(["a0", "a1"]) + timed.count(["a0"]) == len(timed)


def test_a_workload_file_gives_the_same_workload(workload: Workload, tmp_path: Path) -> None:
    file = tmp_path / "generated.json"
    file.write_text(json.dumps(workload_document(workload.scenario, 1)), "utf-8")
    assert load_workload(file) == workload


def test_a_simulation_runs_on_a_generated_workload(workload: Workload) -> None:
    policy = policy_for_workload(workload, 3)
    arrivals = resolve_arrivals(workload, policy)
    assert len(arrivals) == len(workload.requests)
    simulation = Simulation(policy, STRATEGIES["first-come"], SCHEDULE)
    (outcome,) = simulation.run(arrivals, ROUNDS[:1])
    assert 0 < len(outcome.selected) < outcome.considered
