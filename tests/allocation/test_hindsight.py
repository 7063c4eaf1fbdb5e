"""Hindsight bound over a whole run: no strategy reaches a higher utility."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from benchmarks import hindsight
from benchmarks.hindsight import Spans, hindsight_upper_bound
from tests.allocation.sample_rounds import small_policy
from tests.allocation.test_simulation import arrivals

from dpolicy.allocation.simulation import RoundSchedule, Simulation
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.allocation.unlocking import CohortRotation, UnlockingSchedule
from dpolicy.errors import OperationRejected

SCHEDULES = [
    RoundSchedule(CohortRotation("cohort", 2), UnlockingSchedule(2, Fraction(2, 5))),
    RoundSchedule(CohortRotation("cohort", 3)),
    RoundSchedule(),
]


def best(seed: int, schedule: RoundSchedule) -> float:
    """Return the highest utility that a strategy reaches over three rounds."""
    utilities = []
    for strategy in STRATEGIES.values():
        simulation = Simulation(small_policy(), strategy, schedule)
        utilities.append(sum(o.utility for o in simulation.run(arrivals(seed), range(3))))
    return max(utilities)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(4))
def test_no_strategy_exceeds_the_bound(seed: int, schedule: RoundSchedule) -> None:
    bound = hindsight_upper_bound(small_policy(), schedule, arrivals(seed), range(3))
    total = sum(a.utility for a in arrivals(seed))
    assert best(seed, schedule) <= bound <= total * (1 + 1e-6)


def test_the_bound_is_below_the_sum_of_all_utilities() -> None:
    schedule = SCHEDULES[0]
    bounds = [
        hindsight_upper_bound(small_policy(), schedule, arrivals(s), range(3)) for s in range(4)
    ]
    assert sum(bounds) < sum(a.utility for s in range(4) for a in arrivals(s))


def test_a_bound_with_too_little_unlocked_budget_is_exceeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Canary: with a tenth of the unlocked budget, a strategy exceeds the bound."""
    active_spans = hindsight.active_spans

    def smaller_spans(schedule: RoundSchedule, rounds: range) -> Spans:
        result = active_spans(schedule, rounds)
        return replace(result, limits=np.asarray(result.limits) / 10)

    monkeypatch.setattr(hindsight, "active_spans", smaller_spans)
    schedule = SCHEDULES[0]
    exceeded = [
        best(seed, schedule)
        > hindsight_upper_bound(small_policy(), schedule, arrivals(seed), range(3))
        for seed in range(4)
    ]
    assert any(exceeded)


def test_waiting_requests_are_rejected() -> None:
    with pytest.raises(OperationRejected, match="considered once"):
        hindsight_upper_bound(small_policy(), RoundSchedule(max_wait_rounds=2), [], range(3))
