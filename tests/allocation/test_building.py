"""Problems admit exactly the sets that a look at every block admits, and lanes are balances."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest
from tests.allocation.worlds import World, points, random_world
from tests.reference.rounds import admits, fits

from dpolicy.allocation.problem.candidates import demands_by_rule
from dpolicy.allocation.problem.pareto import drop_implied_vectors
from dpolicy.allocation.problem.problem_builder import (
    build_problem,
    build_problem_on_steps,
    most_varied_axis,
)
from dpolicy.allocation.problem.step_functions import SpentByRule, sum_costs
from dpolicy.allocation.unlocking import ALL_UNLOCKED
from dpolicy.balances.balances import Balances
from dpolicy.balances.enforced_policy import enforce
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import loss_width


def spent(world: World) -> Balances:
    balances = enforce(world.policy).cumulative.empty_balances()
    for charge in chain.from_iterable(candidate.charges for candidate in world.past):
        balances.add(charge, 1)
    return balances


@pytest.mark.parametrize("seed", range(16))
def test_a_problem_admits_what_every_block_admits(seed: int) -> None:
    world = random_world(seed)
    of, balances = enforce(world.policy).cumulative, spent(world)
    problem = build_problem(of, balances, world.candidates, world.unlocked)
    numbers = range(len(world.candidates))
    touched = points()
    for size in numbers:
        for chosen in combinations(numbers, size + 1):
            asked = [world.candidates[number] for number in chosen]
            expected = fits(of, balances, asked, touched, world.unlocked)
            assert admits(problem, chosen) == expected, (seed, chosen)


def test_the_twin_sees_sets_of_both_kinds() -> None:
    seen = set()
    for seed in range(8):
        world = random_world(seed)
        of, balances = enforce(world.policy).cumulative, spent(world)
        for n in range(len(world.candidates) - 1):
            pair = world.candidates[n : n + 2]
            alone = all(fits(of, balances, [c], points(), world.unlocked) for c in pair)
            seen.add((alone, fits(of, balances, pair, points(), world.unlocked)))
    assert seen == {(True, True), (True, False), (False, False)}


@pytest.mark.parametrize("axis", range(5))
def test_any_axis_may_be_swept(axis: int) -> None:
    for seed in range(6):
        world = random_world(seed, 4)
        of, balances = enforce(world.policy).cumulative, spent(world)
        asked = demands_by_rule(of.granularities, world.candidates)
        tracks = SpentByRule.from_balances(balances, axis, list(asked))
        one = build_problem_on_steps(of, tracks, world.candidates, asked)
        other = build_problem(of, balances, world.candidates)
        sets = chain.from_iterable(combinations(range(4), n) for n in range(1, 5))
        assert all(admits(one, chosen) == admits(other, chosen) for chosen in sets)


@pytest.mark.parametrize("seed", range(12))
def test_lanes_hold_what_balances_hold(seed: int) -> None:
    world = random_world(seed, 8)
    of, balances = enforce(world.policy).cumulative, spent(world)
    everybody = [c for c in [*world.past, *world.candidates] if not c.refusal_reasons]
    asked = demands_by_rule(of.granularities, everybody)
    axis = most_varied_axis(asked, ALL_UNLOCKED, len(of.full_extent))
    tracks = SpentByRule(of.full_extent, axis, loss_width(of.certificates))
    balances = of.empty_balances()
    for half in (slice(0, 5), slice(5, None)):
        chosen = np.zeros(len(everybody), bool)
        chosen[half] = True
        for candidate in everybody[half]:
            for charge in candidate.charges:
                balances.add(charge, 1)
        for rule, wanted in asked.items():
            won = wanted.restricted_to(chosen)
            if won is not None:
                tracks.charge(rule, won)
    for rule in asked:
        segments = balances.segments_for(rule)
        for point in points()[::7]:
            assert (tracks.loss_at(rule, point) == segments.amounts_at(point)).all()


def test_sums_saturate_and_never_wrap() -> None:
    table = np.array([[INFINITE, INFINITE - 1, 3]], np.int64)
    counts = np.array([[0], [1], [2], [500]], np.int64)
    assert sum_costs(counts, table).tolist() == [
        [0, 0, 0],
        [INFINITE, INFINITE - 1, 3],
        [INFINITE, INFINITE, 6],
        [INFINITE, INFINITE, 1500],
    ]


def test_a_set_inside_another_with_no_less_left_is_no_row() -> None:
    member = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [0, 1, 0]], bool)
    of = np.array([0, 1, 1, 2, 3], np.intp)
    left = np.array([[5, 5], [5, 4], [2, 9], [4, 3], [4, 4]], np.int64)
    kept, vectors = drop_implied_vectors(member, of, left)
    # The first set asks no more than the second does, the last no more than the third.
    assert kept.tolist() == [1, 1, 2]
    assert vectors.tolist() == [[5, 4], [2, 9], [4, 3]]
