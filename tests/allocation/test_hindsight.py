"""The bound over a whole run: nothing that any strategy does, round by round, is worth more."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.allocation.test_rounds import arrivals
from tests.allocation.worlds import small_policy

from dpolicy.allocation.simulation import RoundSchedule, Simulation
from dpolicy.allocation.solving import hindsight_bound as module
from dpolicy.allocation.solving.hindsight_bound import hindsight_upper_bound
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.allocation.unlocking import CohortRotation, UnlockingSchedule
from dpolicy.errors import OperationRejected

SCHEDULES = [
    RoundSchedule(CohortRotation("cohort", 2), UnlockingSchedule(2, Fraction(2, 5))),
    RoundSchedule(CohortRotation("cohort", 3)),
    RoundSchedule(),
]


def best(seed: int, schedule: RoundSchedule) -> float:
    """The most that the strategies reach over three rounds."""
    worths = []
    for strategy in STRATEGIES.values():
        simulation = Simulation(small_policy(), strategy, schedule)
        worths.append(sum(o.utility for o in simulation.run(arrivals(seed), range(3))))
    return max(worths)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(4))
def test_no_strategy_is_worth_more(seed: int, schedule: RoundSchedule) -> None:
    bound = hindsight_upper_bound(small_policy(), schedule, arrivals(seed), range(3))
    asked = sum(a.utility for a in arrivals(seed))
    assert best(seed, schedule) <= bound <= asked * (1 + 1e-6)


def test_it_says_more_than_that_all_could_be_chosen() -> None:
    schedule = SCHEDULES[0]
    bounds = [
        hindsight_upper_bound(small_policy(), schedule, arrivals(s), range(3)) for s in range(4)
    ]
    assert sum(bounds) < sum(a.utility for s in range(4) for a in arrivals(s))


def test_a_bound_that_unlocks_too_little_is_beaten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary: with a tenth of what is unlocked, some strategy is worth more."""
    spans = module._spans

    def fewer(schedule: RoundSchedule, rounds: range) -> module._Spans:
        found = spans(schedule, rounds)
        return replace(found, most=np.asarray(found.most) / 10)

    monkeypatch.setattr(module, "_spans", fewer)
    schedule = SCHEDULES[0]
    beaten = [
        best(seed, schedule)
        > hindsight_upper_bound(small_policy(), schedule, arrivals(seed), range(3))
        for seed in range(4)
    ]
    assert any(beaten)


def test_requests_that_wait_have_no_such_bound() -> None:
    with pytest.raises(OperationRejected, match="considered once"):
        hindsight_upper_bound(small_policy(), RoundSchedule(max_wait_rounds=2), [], range(3))
