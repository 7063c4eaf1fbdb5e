"""Simulations: unlocking, waiting requests, and agreement with rounds on ordinary balances."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from tests.allocation.sample_rounds import mechanisms, points, small_policy
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
def test_the_unlocked_share_never_falls_nor_exceeds_one(steps: int) -> None:
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
    unlocked = unlocked_shares_in_round(20, 1, rotation, PAPER)
    assert unlocked.shares[20] == PAPER.share(1) and unlocked.shares[9] == 1
    assert unlocked.smallest_share((9, 21)) == PAPER.share(1)
    assert unlocked.smallest_share((8, 12)) == 0, "a retired cohort has no unlocked budget"


def test_a_region_is_restricted_to_the_active_cohorts() -> None:
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


def simulate_on_balances(arriving: list[Arrival]) -> list[list[str]]:
    """Simulate on ordinary balances: build each round from them, charge one candidate at a time."""
    policy = small_policy()
    section = enforce(policy).cumulative
    balances, waiting, selected_ids = section.empty_balances(), list[Arrival](), []
    rotation, unlocking = SCHEDULE.rotation, SCHEDULE.unlocking
    assert rotation is not None and unlocking is not None
    for number in range(3):
        considered = [*waiting, *(a for a in arriving if a.round == number)]
        candidates = [_candidate_for_round(a, rotation, number) for a in considered]
        unlocked = unlocked_shares_in_round(number, 1, rotation, unlocking)
        problem = build_problem(section, balances, candidates, unlocked)
        selection = STRATEGIES["first-come"](problem).selected
        selected_candidates = [
            c for c, is_selected in zip(candidates, selection, strict=True) if is_selected
        ]
        active = [p for p in points() if p[1] in range(*rotation.active_cohorts(number))]
        assert fits(section, balances, selected_candidates, active, unlocked)
        for charge in (charge for selected in selected_candidates for charge in selected.charges):
            balances.add(charge, 1)
        selected_ids.append([candidate.id for candidate in selected_candidates])
        not_selected = [
            a for a, is_selected in zip(considered, selection, strict=True) if not is_selected
        ]
        waiting = [a for a in not_selected if a.round == number]
    return selected_ids


def _candidate_for_round(arrival: Arrival, rotation: CohortRotation, number: int) -> Candidate:
    policy = small_policy()
    space, active = enforce(policy).cumulative.full_extent, rotation.active_cohorts(number)
    restricted = [
        replace(m, region=restrict_axis(m.region, space, 1, active)) for m in arrival.mechanisms
    ]
    if any(not m.region.boxes for m in restricted if m.region):
        return Candidate(arrival.id, arrival.utility, (), ("no active cohort",))
    return make_candidate(enforce(policy), arrival.id, arrival.utility, restricted)


@pytest.mark.parametrize("seed", range(4))
def test_a_simulation_selects_the_same_as_on_ordinary_balances(seed: int) -> None:
    arriving = arrivals(seed)
    simulation = Simulation(small_policy(), STRATEGIES["first-come"], SCHEDULE)
    outcomes = list(simulation.run(arriving, range(3)))
    assert [list(outcome.selected) for outcome in outcomes] == simulate_on_balances(arriving)
    assert any(outcome.selected for outcome in outcomes)


def test_requests_wait_until_they_are_dropped() -> None:
    arriving = arrivals(1)
    counts = []
    for max_wait_rounds in (1, 2):
        schedule = RoundSchedule(SCHEDULE.rotation, SCHEDULE.unlocking, max_wait_rounds)
        simulation = Simulation(small_policy(), STRATEGIES["first-come"], schedule)
        outcomes = list(simulation.run(arriving, range(3)))
        counts.append([outcome.considered for outcome in outcomes])
        not_selected = outcomes[0].considered - len(outcomes[0].selected)
        assert outcomes[1].considered == 8 + (not_selected if max_wait_rounds == 2 else 0)
    assert counts[0] == [8, 8, 8]


def test_without_cohorts_everything_is_unlocked() -> None:
    simulation = Simulation(small_policy(), STRATEGIES["first-come"], RoundSchedule())
    assert simulation._unlocked_shares(3) is ALL_UNLOCKED
    with pytest.raises(OperationRejected, match="not a partition with a range"):
        Simulation(
            small_policy(), STRATEGIES["first-come"], RoundSchedule(CohortRotation("country", 2))
        )
