"""Rounds: what is unlocked, who waits, and that fast rounds choose what slow ones choose."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from tests.allocation.worlds import mechanisms, points, small_policy
from tests.reference.rounds import fits

from dpolicy.allocation.problem.candidates import Candidate, make_candidate
from dpolicy.allocation.problem.problem_builder import build_problem
from dpolicy.allocation.simulation import Arrival, RoundSchedule, Simulation, restrict_axis
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.allocation.unlocking import (
    ALL_UNLOCKED,
    CohortRotation,
    UnlockingSchedule,
    scale_threshold,
    unlocked_shares_in_round,
)
from dpolicy.balances.enforced_policy import enforce
from dpolicy.errors import OperationRejected
from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.regions import Region

PAPER = UnlockingSchedule(12, Fraction(2, 5))
SCHEDULE = RoundSchedule(
    CohortRotation("cohort", 2), UnlockingSchedule(2, Fraction(2, 5)), max_wait_rounds=2
)


def test_the_schedule_of_the_paper() -> None:
    shares = [round(float(PAPER.share(age)), 3) for age in range(1, 13)]
    assert shares == [0.117, 0.233, 0.35, 0.467, 0.583, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1]


@pytest.mark.parametrize("steps", range(1, 14))
def test_what_is_unlocked_never_shrinks_nor_passes_the_whole(steps: int) -> None:
    for slack in (Fraction(0), Fraction(2, 5), Fraction(1)):
        shares = [UnlockingSchedule(steps, slack).share(age) for age in range(-1, steps + 3)]
        assert shares == sorted(shares)
        assert shares[0] == 0 and shares[-1] == 1


def test_thresholds_are_scaled_down() -> None:
    assert scale_threshold(10, Fraction(2, 3)) == 6
    assert scale_threshold(-1, Fraction(2, 3)) == -1
    assert scale_threshold(INFINITE, Fraction(2, 3)) == INFINITE


def test_a_cohort_is_active_for_its_rounds() -> None:
    rotation = CohortRotation("cohort", 12)
    assert [n for n in range(40) if n in range(*rotation.active_cohorts(20))] == list(range(9, 21))
    now = unlocked_shares_in_round(20, 1, rotation, PAPER)
    assert now.shares[20] == PAPER.share(1) and now.shares[9] == 1
    assert now.smallest_share((9, 21)) == PAPER.share(1)
    assert now.smallest_share((8, 12)) == 0, "a retired cohort has nothing left to select"


def test_a_region_is_narrowed_to_the_active_cohorts() -> None:
    space = ((0, 8), (0, 4))
    assert restrict_axis(None, space, 1, (-3, 2)) == Region((((0, 8), (0, 2)),))
    split = Region((((0, 2), (0, 4)), ((4, 6), (1, 3))))
    assert restrict_axis(split, space, 1, (2, 4)).boxes == (((0, 2), (2, 4)), ((4, 6), (2, 3)))
    with pytest.raises(OperationRejected, match="no cohort"):
        restrict_axis(None, space, 1, (9, 12))


def arrivals(seed: int) -> list[Arrival]:
    draw, policy = Random(seed), small_policy()
    return [
        Arrival(f"r{n}", n % 3, draw.randrange(1, 9), mechanisms(policy, draw, f"r{n}"))
        for n in range(24)
    ]


def slow(arriving: list[Arrival]) -> list[list[str]]:
    """The same on ordinary balances, built anew each round, each winner charged by itself."""
    policy = small_policy()
    of = enforce(policy).cumulative
    balances, waiting, accepted = of.empty_balances(), list[Arrival](), []
    rotation, unlocking = SCHEDULE.rotation, SCHEDULE.unlocking
    assert rotation is not None and unlocking is not None
    for number in range(3):
        considered = [*waiting, *(a for a in arriving if a.round == number)]
        candidates = [_candidate(a, rotation, number) for a in considered]
        unlocked = unlocked_shares_in_round(number, 1, rotation, unlocking)
        problem = build_problem(of, balances, candidates, unlocked)
        chosen = STRATEGIES["first-come"](problem).selected
        winners = [c for c, wins in zip(candidates, chosen, strict=True) if wins]
        active = [p for p in points() if p[1] in range(*rotation.active_cohorts(number))]
        assert fits(of, balances, winners, active, unlocked)
        for charge in (charge for winner in winners for charge in winner.charges):
            balances.add(charge, 1)
        accepted.append([winner.id for winner in winners])
        left = [a for a, wins in zip(considered, chosen, strict=True) if not wins]
        waiting = [a for a in left if a.round == number]
    return accepted


def _candidate(arrival: Arrival, rotation: CohortRotation, number: int) -> Candidate:
    policy = small_policy()
    space, active = enforce(policy).cumulative.full_extent, rotation.active_cohorts(number)
    moved = [
        replace(m, region=restrict_axis(m.region, space, 1, active)) for m in arrival.mechanisms
    ]
    if any(not m.region.boxes for m in moved if m.region):
        return Candidate(arrival.id, arrival.utility, (), ("nobody",))
    return make_candidate(enforce(policy), arrival.id, arrival.utility, moved)


@pytest.mark.parametrize("seed", range(4))
def test_fast_rounds_choose_what_slow_ones_choose(seed: int) -> None:
    arriving = arrivals(seed)
    simulation = Simulation(small_policy(), STRATEGIES["first-come"], SCHEDULE)
    outcomes = list(simulation.run(arriving, range(3)))
    assert [list(outcome.accepted) for outcome in outcomes] == slow(arriving)
    assert any(outcome.accepted for outcome in outcomes)


def test_requests_wait_until_they_are_dropped() -> None:
    arriving = arrivals(1)
    counts = []
    for patience in (1, 2):
        schedule = RoundSchedule(SCHEDULE.rotation, SCHEDULE.unlocking, patience)
        simulation = Simulation(small_policy(), STRATEGIES["first-come"], schedule)
        outcomes = list(simulation.run(arriving, range(3)))
        counts.append([outcome.considered for outcome in outcomes])
        lost = outcomes[0].considered - len(outcomes[0].accepted)
        assert outcomes[1].considered == 8 + (lost if patience == 2 else 0)
    assert counts[0] == [8, 8, 8]


def test_without_cohorts_everything_is_unlocked() -> None:
    simulation = Simulation(small_policy(), STRATEGIES["first-come"], RoundSchedule())
    assert simulation._unlocked(3) is ALL_UNLOCKED
    with pytest.raises(OperationRejected, match="no partition with a range"):
        Simulation(
            small_policy(), STRATEGIES["first-come"], RoundSchedule(CohortRotation("country", 2))
        )
