"""Strategies against exhaustive search: feasible, never above the optimum, valid bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.allocation.problem_generators import allocation_problems
from tests.reference import knapsack

from dpolicy.allocation.problem.knapsack import AllocationProblem, ConstraintRow
from dpolicy.allocation.solving import highs, upper_bound
from dpolicy.allocation.solving.constraint_matrix import build_constraint_matrix
from dpolicy.allocation.solving.greedy_fill import GreedyFill, fits_together
from dpolicy.allocation.solving.upper_bound import compute_upper_bound
from dpolicy.allocation.solving.utilisation import UtilisationTable, utilisation_shares
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.allocation.strategies.exact import exact
from dpolicy.allocation.strategies.price import price
from dpolicy.errors import OperationRejected
from dpolicy.privacy.loss import INFINITE

CLOSE = 1e-6


def make_problem(utilities: list[float], *rows: ConstraintRow) -> AllocationProblem:
    """Make a problem in which all candidates fit alone."""
    size = len(utilities)
    ids = tuple(f"r{number}" for number in range(size))
    return AllocationProblem(ids, np.array(utilities, float), rows, np.ones(size, dtype=np.bool_))


def make_row(
    costs: list[list[int]], remaining: list[list[int]], require_all: bool = False
) -> ConstraintRow:
    """Make a row of all candidates; the δ-side is added and has no limit."""
    amounts = np.array([[*line, 0] for line in costs], dtype=np.int64)
    capacity = np.array([[*line, INFINITE] for line in remaining], dtype=np.int64)
    candidates = np.arange(len(costs))
    return ConstraintRow(0, candidates, candidates, amounts, capacity, require_all)


def greedy(problem: AllocationProblem) -> np.ndarray:
    """Return the greedy fill in the order of the numbers."""
    return GreedyFill(build_constraint_matrix(problem)).fill(range(len(problem.ids)))


@settings(max_examples=300, deadline=None)
@given(allocation_problems())
def test_greedy_fill_matches_the_reference(problem: AllocationProblem) -> None:
    taken: list[int] = []
    for candidate in range(len(problem.ids)):
        if knapsack.fits(problem, [*taken, candidate]):
            taken.append(candidate)
    chosen = greedy(problem)
    assert np.flatnonzero(chosen).tolist() == taken
    assert fits_together(problem, chosen)


@settings(max_examples=200, deadline=None)
@given(allocation_problems(), st.data())
def test_fits_together_matches_the_reference(
    problem: AllocationProblem, data: st.DataObject
) -> None:
    size = len(problem.ids)
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    assert fits_together(problem, chosen) == knapsack.fits(problem, np.flatnonzero(chosen).tolist())
    inside = chosen & problem.fits_alone
    violated = GreedyFill(build_constraint_matrix(problem)).find_violated_limits(inside)
    assert (len(violated) == 0) == knapsack.fits(problem, np.flatnonzero(inside).tolist())


@settings(max_examples=150, deadline=None)
@given(allocation_problems())
def test_solutions_are_feasible_and_bounds_are_valid(problem: AllocationProblem) -> None:
    best = knapsack.best(problem)
    for name, strategy in STRATEGIES.items():
        solution = strategy(problem)
        numbers = np.flatnonzero(solution.selected).tolist()
        assert knapsack.fits(problem, numbers), name
        assert solution.utility(problem) <= best + CLOSE, name
        assert solution.bound >= best, name
        assert 0 <= solution.gap(problem) <= 1, name
        assert name != "exact" or solution.utility(problem) == pytest.approx(best)


@settings(max_examples=60, deadline=None)
@given(allocation_problems(max_candidates=12))
def test_exact_proves_the_optimum(problem: AllocationProblem) -> None:
    solution = exact(problem)
    assert solution.utility(problem) == pytest.approx(knapsack.best(problem))
    assert solution.gap(problem) <= CLOSE


@settings(max_examples=60, deadline=None)
@given(allocation_problems(), st.data())
def test_the_order_of_candidates_does_not_matter_to_exact(
    problem: AllocationProblem, data: st.DataObject
) -> None:
    order = np.array(data.draw(st.permutations(range(len(problem.ids)))))
    position = np.argsort(order)
    rows = []
    for old in problem.rows:
        new = position[old.candidates]
        ranked = np.argsort(new)
        rows.append(replace(old, candidates=new[ranked], cost_kinds=old.cost_kinds[ranked]))
    ids = tuple(problem.ids[number] for number in order)
    alone = problem.fits_alone[order]
    other = AllocationProblem(ids, problem.utilities[order], tuple(rows), alone)
    assert exact(other).utility(other) == pytest.approx(exact(problem).utility(problem))


@settings(max_examples=60, deadline=None)
@given(allocation_problems(), st.integers(1, 10))
def test_more_budget_never_lowers_the_optimum(problem: AllocationProblem, increase: int) -> None:
    rows = tuple(
        replace(old, remaining=np.minimum(old.remaining + increase, INFINITE))
        for old in problem.rows
    )
    richer = replace(problem, rows=rows)
    assert exact(richer).utility(richer) >= exact(problem).utility(problem) - CLOSE


@settings(max_examples=40, deadline=None)
@given(allocation_problems())
def test_strategies_are_deterministic(problem: AllocationProblem) -> None:
    for strategy in STRATEGIES.values():
        first, second = strategy(problem), strategy(problem)
        assert first.selected.tobytes() == second.selected.tobytes()
        assert first.bound == second.bound
        assert first.prices.tobytes() == second.prices.tobytes()


@settings(max_examples=100, deadline=None)
@given(allocation_problems())
def test_the_bound_without_a_solver_is_valid(problem: AllocationProblem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upper_bound, "is_installed", lambda: False)
        assert compute_upper_bound(
            UtilisationTable(build_constraint_matrix(problem))
        ).value >= knapsack.best(problem)


def test_without_a_solver_the_error_names_the_package() -> None:
    problem = make_problem([1, 1], make_row([[1], [1]], [[1]]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upper_bound, "is_installed", lambda: False)
        patch.setattr(highs, "is_installed", lambda: False)
        for name in ("first-come", "fair", "efficient"):
            assert STRATEGIES[name](problem).utility(problem) == 1
        with pytest.raises(OperationRejected, match=r"dpolicy\[allocation\]"):
            price(problem)


def test_without_rows_all_feasible_candidates_are_selected() -> None:
    problem = replace(make_problem([3, 4, 5]), fits_alone=np.array([True, False, True]))
    for name, strategy in STRATEGIES.items():
        solution = strategy(problem)
        assert solution.selected.tolist() == [True, False, True], name
        assert solution.bound == pytest.approx(8), name


def test_blocks_of_a_row_may_use_different_certificates() -> None:
    # One certificate per vector is enough; no certificate fits both vectors.
    problem = make_problem([1, 1], make_row([[5, 5], [5, 5]], [[10, 1], [1, 10]]))
    least = replace(problem.rows[0], remaining=problem.rows[0].remaining.min(axis=0, keepdims=True))
    assert greedy(problem).all()
    for name, strategy in STRATEGIES.items():
        assert strategy(problem).utility(problem) == 2, name
    assert not greedy(replace(problem, rows=(least,))).any()


def test_one_quantum_above_the_limit_is_infeasible() -> None:
    half = 5 * 10**17
    problem = make_problem([2, 2, 3], make_row([[half], [half], [half + 1]], [[2 * half]]))
    assert exact(problem).selected.tolist() == [True, True, False]
    assert exact(problem).bound == pytest.approx(4)
    several = make_problem([2, 2, 3], make_row([[half, 9]] * 2 + [[half + 1, 9]], [[2 * half, 10]]))
    assert exact(several).selected.tolist() == [True, True, False]


@settings(max_examples=60, deadline=None)
@given(allocation_problems())
def test_there_is_one_price_per_row(problem: AllocationProblem) -> None:
    for name in ("price", "exact"):
        prices = STRATEGIES[name](problem).prices
        assert prices.shape == (len(problem.rows),) and (prices >= 0).all()


@settings(max_examples=60, deadline=None)
@given(allocation_problems())
def test_price_is_never_behind_efficient(problem: AllocationProblem) -> None:
    utilities = [
        STRATEGIES[name](problem).utility(problem) for name in ("efficient", "price", "exact")
    ]
    assert utilities == sorted(utilities)


def test_a_problem_without_candidates() -> None:
    for name, strategy in STRATEGIES.items():
        solution = strategy(make_problem([]))
        assert len(solution.selected) == 0 and solution.bound == 0, name


def test_fair_prefers_small_shares_and_efficient_high_utility() -> None:
    problem = make_problem([9, 1, 1, 1], make_row([[10], [4], [4], [2]], [[10]]))
    assert STRATEGIES["first-come"](problem).selected.tolist() == [True, False, False, False]
    assert STRATEGIES["fair"](problem).selected.tolist() == [False, True, True, True]
    assert STRATEGIES["efficient"](problem).selected.tolist() == [True, False, False, False]


def test_canary_ignoring_a_vector_is_detected() -> None:
    """A greedy fill that checks only the first vector of a row fails the reference check."""
    problem = make_problem([1, 1], make_row([[5, 5], [5, 5]], [[10, 1], [1, 5]]))
    forgetful = replace(
        problem, rows=(replace(problem.rows[0], remaining=problem.rows[0].remaining[:1]),)
    )
    assert not knapsack.fits(problem, np.flatnonzero(greedy(forgetful)).tolist())
    assert knapsack.fits(problem, np.flatnonzero(greedy(problem)).tolist())


def test_canary_a_bound_with_the_elementwise_minimum_is_detected() -> None:
    """A bound in which all vectors of a row use one certificate is below the optimum."""
    problem = make_problem([1, 1], make_row([[5, 5], [5, 5]], [[10, 1], [1, 10]]))
    least = replace(problem.rows[0], remaining=problem.rows[0].remaining.min(axis=0, keepdims=True))
    strict = compute_upper_bound(
        UtilisationTable(build_constraint_matrix(replace(problem, rows=(least,))))
    ).value
    assert (
        strict
        < knapsack.best(problem)
        <= compute_upper_bound(UtilisationTable(build_constraint_matrix(problem))).value
    )


def test_canary_a_bound_in_one_column_is_detected() -> None:
    """An inequality in one column is not a valid bound: the optimum may use another column."""
    problem = make_problem([1, 1], make_row([[5, 1], [5, 1]], [[5, 2]]))
    matrix = build_constraint_matrix(problem)
    assert (
        utilisation_shares(matrix, np.array([0]), np.array([0])).sum()
        > 1
        == knapsack.best(problem) - 1
    )
    assert utilisation_shares(matrix, np.array([0])).sum() <= 1


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_exact_does_not_depend_on_the_unit_of_utility(unit: float) -> None:
    costs = [[6], [5], [5], [4]]
    problem = make_problem([u * unit for u in (6.0, 5.0, 5.0, 1.0)], make_row(costs, [[10]]))
    assert np.flatnonzero(exact(problem).selected).tolist() == [1, 2]
