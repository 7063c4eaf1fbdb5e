"""Strategies against the naive twin: nothing breaks a rule, nothing beats the best, bounds hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.allocation.problems import rounds
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


def problem(utilities: list[float], *rows: ConstraintRow) -> AllocationProblem:
    """A problem in which everyone fits alone."""
    size = len(utilities)
    ids = tuple(f"r{number}" for number in range(size))
    return AllocationProblem(ids, np.array(utilities, float), rows, np.ones(size, dtype=np.bool_))


def row(costs: list[list[int]], left: list[list[int]], every: bool = False) -> ConstraintRow:
    """A row of all candidates; the δ-side is added and never binds."""
    amounts = np.array([[*line, 0] for line in costs], dtype=np.int64)
    room = np.array([[*line, INFINITE] for line in left], dtype=np.int64)
    everyone = np.arange(len(costs))
    return ConstraintRow(0, everyone, everyone, amounts, room, every)


def greedy(found: AllocationProblem) -> np.ndarray:
    """Who is taken by number, as the strategies fill."""
    return GreedyFill(build_constraint_matrix(found)).fill(range(len(found.ids)))


@settings(max_examples=300, deadline=None)
@given(rounds())
def test_greedy_is_the_naive_one(found: AllocationProblem) -> None:
    taken: list[int] = []
    for candidate in range(len(found.ids)):
        if knapsack.fits(found, [*taken, candidate]):
            taken.append(candidate)
    chosen = greedy(found)
    assert np.flatnonzero(chosen).tolist() == taken
    assert fits_together(found, chosen)


@settings(max_examples=200, deadline=None)
@given(rounds(), st.data())
def test_a_choice_fits_as_the_naive_one(found: AllocationProblem, data: st.DataObject) -> None:
    size = len(found.ids)
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    assert fits_together(found, chosen) == knapsack.fits(found, np.flatnonzero(chosen).tolist())
    inside = chosen & found.fits_alone
    broken = GreedyFill(build_constraint_matrix(found)).violated_limits(inside)
    assert (len(broken) == 0) == knapsack.fits(found, np.flatnonzero(inside).tolist())


@settings(max_examples=150, deadline=None)
@given(rounds())
def test_nothing_breaks_a_rule_or_beats_the_best(found: AllocationProblem) -> None:
    best = knapsack.best(found)
    for name, strategy in STRATEGIES.items():
        allocation = strategy(found)
        who = np.flatnonzero(allocation.selected).tolist()
        assert knapsack.fits(found, who), name
        assert allocation.utility(found) <= best + CLOSE, name
        assert allocation.bound >= best, name
        assert 0 <= allocation.gap(found) <= 1, name
        assert name != "exact" or allocation.utility(found) == pytest.approx(best)


@settings(max_examples=60, deadline=None)
@given(rounds(most=12))
def test_exact_tells_that_it_is(found: AllocationProblem) -> None:
    allocation = exact(found)
    assert allocation.utility(found) == pytest.approx(knapsack.best(found))
    assert allocation.gap(found) <= CLOSE


@settings(max_examples=60, deadline=None)
@given(rounds(), st.data())
def test_the_order_of_candidates_does_not_matter_to_exact(
    found: AllocationProblem, data: st.DataObject
) -> None:
    order = np.array(data.draw(st.permutations(range(len(found.ids)))))
    place = np.argsort(order)
    rows = []
    for old in found.rows:
        new = place[old.candidates]
        by = np.argsort(new)
        rows.append(replace(old, candidates=new[by], cost_kinds=old.cost_kinds[by]))
    ids = tuple(found.ids[number] for number in order)
    alone = found.fits_alone[order]
    other = AllocationProblem(ids, found.utilities[order], tuple(rows), alone)
    assert exact(other).utility(other) == pytest.approx(exact(found).utility(found))


@settings(max_examples=60, deadline=None)
@given(rounds(), st.integers(1, 10))
def test_more_left_is_never_worse(found: AllocationProblem, more: int) -> None:
    rows = tuple(
        replace(old, remaining=np.minimum(old.remaining + more, INFINITE)) for old in found.rows
    )
    richer = replace(found, rows=rows)
    assert exact(richer).utility(richer) >= exact(found).utility(found) - CLOSE


@settings(max_examples=40, deadline=None)
@given(rounds())
def test_the_same_round_gets_the_same_answer(found: AllocationProblem) -> None:
    for strategy in STRATEGIES.values():
        once, again = strategy(found), strategy(found)
        assert once.selected.tobytes() == again.selected.tobytes()
        assert once.bound == again.bound
        assert once.prices.tobytes() == again.prices.tobytes()


@settings(max_examples=100, deadline=None)
@given(rounds())
def test_a_bound_without_a_solver_holds(found: AllocationProblem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upper_bound, "is_installed", lambda: False)
        assert compute_upper_bound(
            UtilisationTable(build_constraint_matrix(found))
        ).value >= knapsack.best(found)


def test_without_a_solver_the_error_says_what_to_install() -> None:
    found = problem([1, 1], row([[1], [1]], [[1]]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upper_bound, "is_installed", lambda: False)
        patch.setattr(highs, "is_installed", lambda: False)
        for name in ("first-come", "fair", "efficient"):
            assert STRATEGIES[name](found).utility(found) == 1
        with pytest.raises(OperationRejected, match=r"dpolicy\[allocation\]"):
            price(found)


def test_nothing_contested_takes_everyone() -> None:
    found = replace(problem([3, 4, 5]), fits_alone=np.array([True, False, True]))
    for name, strategy in STRATEGIES.items():
        allocation = strategy(found)
        assert allocation.selected.tolist() == [True, False, True], name
        assert allocation.bound == pytest.approx(8), name


def test_different_blocks_may_rest_on_different_certificates() -> None:
    # One of each vector's certificates is enough; no certificate is within both vectors.
    found = problem([1, 1], row([[5, 5], [5, 5]], [[10, 1], [1, 10]]))
    least = replace(found.rows[0], remaining=found.rows[0].remaining.min(axis=0, keepdims=True))
    assert greedy(found).all()
    for name, strategy in STRATEGIES.items():
        assert strategy(found).utility(found) == 2, name
    assert not greedy(replace(found, rows=(least,))).any()


def test_a_quantum_too_much_is_too_much() -> None:
    half = 5 * 10**17
    found = problem([2, 2, 3], row([[half], [half], [half + 1]], [[2 * half]]))
    assert exact(found).selected.tolist() == [True, True, False]
    assert exact(found).bound == pytest.approx(4)
    several = problem([2, 2, 3], row([[half, 9]] * 2 + [[half + 1, 9]], [[2 * half, 10]]))
    assert exact(several).selected.tolist() == [True, True, False]


@settings(max_examples=60, deadline=None)
@given(rounds())
def test_prices_are_one_a_row(found: AllocationProblem) -> None:
    for name in ("price", "exact"):
        prices = STRATEGIES[name](found).prices
        assert prices.shape == (len(found.rows),) and (prices >= 0).all()


@settings(max_examples=60, deadline=None)
@given(rounds())
def test_price_is_never_behind_efficient(found: AllocationProblem) -> None:
    worths = [STRATEGIES[name](found).utility(found) for name in ("efficient", "price", "exact")]
    assert worths == sorted(worths)


def test_nobody_asks() -> None:
    for name, strategy in STRATEGIES.items():
        allocation = strategy(problem([]))
        assert len(allocation.selected) == 0 and allocation.bound == 0, name


def test_fair_takes_the_smallest_and_efficient_the_worthiest() -> None:
    found = problem([9, 1, 1, 1], row([[10], [4], [4], [2]], [[10]]))
    assert STRATEGIES["first-come"](found).selected.tolist() == [True, False, False, False]
    assert STRATEGIES["fair"](found).selected.tolist() == [False, True, True, True]
    assert STRATEGIES["efficient"](found).selected.tolist() == [True, False, False, False]


def test_canary_forgetting_a_vector_is_caught() -> None:
    """A greedy that looks at the first vector of a row only breaks the naive check."""
    found = problem([1, 1], row([[5, 5], [5, 5]], [[10, 1], [1, 5]]))
    forgetful = replace(
        found, rows=(replace(found.rows[0], remaining=found.rows[0].remaining[:1]),)
    )
    assert not knapsack.fits(found, np.flatnonzero(greedy(forgetful)).tolist())
    assert knapsack.fits(found, np.flatnonzero(greedy(found)).tolist())


def test_canary_a_bound_with_the_elementwise_minimum_is_caught() -> None:
    """A bound in which all vectors of a row rest on one certificate is below the best."""
    found = problem([1, 1], row([[5, 5], [5, 5]], [[10, 1], [1, 10]]))
    least = replace(found.rows[0], remaining=found.rows[0].remaining.min(axis=0, keepdims=True))
    strict = compute_upper_bound(
        UtilisationTable(build_constraint_matrix(replace(found, rows=(least,))))
    ).value
    assert (
        strict
        < knapsack.best(found)
        <= compute_upper_bound(UtilisationTable(build_constraint_matrix(found))).value
    )


def test_canary_a_bound_in_one_column_is_caught() -> None:
    """A line in one column is no bound: the best choice may rest on another."""
    found = problem([1, 1], row([[5, 1], [5, 1]], [[5, 2]]))
    table = build_constraint_matrix(found)
    assert (
        utilisation_shares(table, np.array([0]), np.array([0])).sum()
        > 1
        == knapsack.best(found) - 1
    )
    assert utilisation_shares(table, np.array([0])).sum() <= 1


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_exact_does_not_depend_on_what_a_utility_is_counted_in(unit: float) -> None:
    costs = [[6], [5], [5], [4]]
    found = problem([u * unit for u in (6.0, 5.0, 5.0, 1.0)], row(costs, [[10]]))
    assert np.flatnonzero(exact(found).selected).tolist() == [1, 2]
