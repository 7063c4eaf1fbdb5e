"""Problems admit exactly the sets that fit in every block; step functions equal balances."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest
from tests.allocation.sample_rounds import SampleRound, points, random_round
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


def balances_before(sample: SampleRound) -> Balances:
    balances = enforce(sample.policy).cumulative.empty_balances()
    for charge in chain.from_iterable(candidate.charges for candidate in sample.past):
        balances.add(charge, 1)
    return balances


@pytest.mark.parametrize("seed", range(16))
def test_a_problem_admits_the_sets_that_fit_in_every_block(seed: int) -> None:
    sample = random_round(seed)
    section, balances = enforce(sample.policy).cumulative, balances_before(sample)
    problem = build_problem(section, balances, sample.candidates, sample.unlocked)
    numbers = range(len(sample.candidates))
    touched = points()
    for size in numbers:
        for selected in combinations(numbers, size + 1):
            candidates = [sample.candidates[number] for number in selected]
            expected = fits(section, balances, candidates, touched, sample.unlocked)
            assert admits(problem, selected) == expected, (seed, selected)


def test_samples_contain_feasible_and_infeasible_sets() -> None:
    results = set()
    for seed in range(8):
        sample = random_round(seed)
        section, balances = enforce(sample.policy).cumulative, balances_before(sample)
        for n in range(len(sample.candidates) - 1):
            pair = sample.candidates[n : n + 2]
            alone = all(fits(section, balances, [c], points(), sample.unlocked) for c in pair)
            results.add((alone, fits(section, balances, pair, points(), sample.unlocked)))
    assert results == {(True, True), (True, False), (False, False)}


@pytest.mark.parametrize("axis", range(5))
def test_any_axis_may_be_swept(axis: int) -> None:
    for seed in range(6):
        sample = random_round(seed, 4)
        section, balances = enforce(sample.policy).cumulative, balances_before(sample)
        demands = demands_by_rule(section.granularities, sample.candidates)
        spent = SpentByRule.from_balances(balances, axis, list(demands))
        on_steps = build_problem_on_steps(section, spent, sample.candidates, demands)
        on_balances = build_problem(section, balances, sample.candidates)
        sets = chain.from_iterable(combinations(range(4), n) for n in range(1, 5))
        assert all(admits(on_steps, selected) == admits(on_balances, selected) for selected in sets)


@pytest.mark.parametrize("seed", range(12))
def test_step_functions_equal_balances(seed: int) -> None:
    sample = random_round(seed, 8)
    section, balances = enforce(sample.policy).cumulative, balances_before(sample)
    candidates = [c for c in [*sample.past, *sample.candidates] if not c.rejection_reasons]
    demands = demands_by_rule(section.granularities, candidates)
    axis = most_varied_axis(demands, ALL_UNLOCKED, len(section.full_extent))
    spent = SpentByRule(section.full_extent, axis, loss_width(section.certificates))
    balances = section.empty_balances()
    for half in (slice(0, 5), slice(5, None)):
        selected = np.zeros(len(candidates), bool)
        selected[half] = True
        for candidate in candidates[half]:
            for charge in candidate.charges:
                balances.add(charge, 1)
        for rule, demand in demands.items():
            charged = demand.restrict_to(selected)
            if charged is not None:
                spent.charge(rule, charged)
    for rule in demands:
        segments = balances.segments_for(rule)
        for point in points()[::7]:
            assert (spent.loss_at(rule, point) == segments.amounts_at(point)).all()


def test_sums_saturate_and_never_wrap() -> None:
    table = np.array([[INFINITE, INFINITE - 1, 3]], np.int64)
    counts = np.array([[0], [1], [2], [500]], np.int64)
    assert sum_costs(counts, table).tolist() == [
        [0, 0, 0],
        [INFINITE, INFINITE - 1, 3],
        [INFINITE, INFINITE, 6],
        [INFINITE, INFINITE, 1500],
    ]


def test_a_vector_that_a_superset_implies_is_dropped() -> None:
    member = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [0, 1, 0]], bool)
    set_index = np.array([0, 1, 1, 2, 3], np.intp)
    remaining = np.array([[5, 5], [5, 4], [2, 9], [4, 3], [4, 4]], np.int64)
    kept, vectors = drop_implied_vectors(member, set_index, remaining)
    # The second set implies the first, and the third implies the last.
    assert kept.tolist() == [1, 1, 2]
    assert vectors.tolist() == [[5, 4], [2, 9], [4, 3]]
