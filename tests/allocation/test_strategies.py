"""Strategies against the naive twin: nothing breaks a rule, nothing beats the best, bounds hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.allocation.problems import rounds
from tests.reference import knapsack

from dpolicy.allocation import bound, solver
from dpolicy.allocation.bound import bound_of
from dpolicy.allocation.feasible import Filling, fits
from dpolicy.allocation.loads import Scale, shares
from dpolicy.allocation.problem import Problem, Row
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.allocation.strategies.exact import exact
from dpolicy.allocation.strategies.price import price
from dpolicy.allocation.table import table_of
from dpolicy.errors import Misused
from dpolicy.privacy.loss import INFINITE

CLOSE = 1e-6


def problem(utilities: list[float], *rows: Row) -> Problem:
    """A problem in which everyone fits alone."""
    size = len(utilities)
    ids = tuple(f"r{number}" for number in range(size))
    return Problem(ids, np.array(utilities, float), rows, np.ones(size, dtype=np.bool_))


def row(costs: list[list[int]], left: list[list[int]], every: bool = False) -> Row:
    """A row of all candidates; the δ-side is added and never binds."""
    amounts = np.array([[*line, 0] for line in costs], dtype=np.int64)
    room = np.array([[*line, INFINITE] for line in left], dtype=np.int64)
    everyone = np.arange(len(costs))
    return Row(0, everyone, everyone, amounts, room, every)


def greedy(found: Problem) -> np.ndarray:
    """Who is taken by number, as the strategies fill."""
    return Filling(table_of(found)).fill(range(len(found.ids)))


@settings(max_examples=300, deadline=None)
@given(rounds())
def test_greedy_is_the_naive_one(found: Problem) -> None:
    taken: list[int] = []
    for candidate in range(len(found.ids)):
        if knapsack.fits(found, [*taken, candidate]):
            taken.append(candidate)
    chosen = greedy(found)
    assert np.flatnonzero(chosen).tolist() == taken
    assert fits(found, chosen)


@settings(max_examples=200, deadline=None)
@given(rounds(), st.data())
def test_a_choice_fits_as_the_naive_one(found: Problem, data: st.DataObject) -> None:
    size = len(found.ids)
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    assert fits(found, chosen) == knapsack.fits(found, np.flatnonzero(chosen).tolist())
    inside = chosen & found.fits_alone
    broken = Filling(table_of(found)).broken(inside)
    assert (len(broken) == 0) == knapsack.fits(found, np.flatnonzero(inside).tolist())


@settings(max_examples=150, deadline=None)
@given(rounds())
def test_nothing_breaks_a_rule_or_beats_the_best(found: Problem) -> None:
    best = knapsack.best(found)
    for name, strategy in STRATEGIES.items():
        allocation = strategy(found)
        who = np.flatnonzero(allocation.chosen).tolist()
        assert knapsack.fits(found, who), name
        assert allocation.utility(found) <= best + CLOSE, name
        assert allocation.bound >= best, name
        assert 0 <= allocation.gap(found) <= 1, name
        assert name != "exact" or allocation.utility(found) == pytest.approx(best)


@settings(max_examples=60, deadline=None)
@given(rounds(most=12))
def test_exact_tells_that_it_is(found: Problem) -> None:
    allocation = exact(found)
    assert allocation.utility(found) == pytest.approx(knapsack.best(found))
    assert allocation.gap(found) <= CLOSE


@settings(max_examples=60, deadline=None)
@given(rounds(), st.data())
def test_the_order_of_candidates_does_not_matter_to_exact(
    found: Problem, data: st.DataObject
) -> None:
    order = np.array(data.draw(st.permutations(range(len(found.ids)))))
    place = np.argsort(order)
    rows = []
    for old in found.rows:
        new = place[old.candidates]
        by = np.argsort(new)
        rows.append(replace(old, candidates=new[by], kinds=old.kinds[by]))
    ids = tuple(found.ids[number] for number in order)
    alone = found.fits_alone[order]
    other = Problem(ids, found.utilities[order], tuple(rows), alone)
    assert exact(other).utility(other) == pytest.approx(exact(found).utility(found))


@settings(max_examples=60, deadline=None)
@given(rounds(), st.integers(1, 10))
def test_more_left_is_never_worse(found: Problem, more: int) -> None:
    rows = tuple(replace(old, left=np.minimum(old.left + more, INFINITE)) for old in found.rows)
    richer = replace(found, rows=rows)
    assert exact(richer).utility(richer) >= exact(found).utility(found) - CLOSE


@settings(max_examples=40, deadline=None)
@given(rounds())
def test_the_same_round_gets_the_same_answer(found: Problem) -> None:
    for strategy in STRATEGIES.values():
        once, again = strategy(found), strategy(found)
        assert once.chosen.tobytes() == again.chosen.tobytes()
        assert once.bound == again.bound
        assert once.prices.tobytes() == again.prices.tobytes()


@settings(max_examples=100, deadline=None)
@given(rounds())
def test_a_bound_without_a_solver_holds(found: Problem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bound, "installed", lambda: False)
        assert bound_of(Scale(table_of(found))).value >= knapsack.best(found)


def test_without_a_solver_the_error_says_what_to_install() -> None:
    found = problem([1, 1], row([[1], [1]], [[1]]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bound, "installed", lambda: False)
        patch.setattr(solver, "installed", lambda: False)
        for name in ("first-come", "fair", "efficient"):
            assert STRATEGIES[name](found).utility(found) == 1
        with pytest.raises(Misused, match=r"dpolicy\[allocation\]"):
            price(found)


def test_nothing_contested_takes_everyone() -> None:
    found = replace(problem([3, 4, 5]), fits_alone=np.array([True, False, True]))
    for name, strategy in STRATEGIES.items():
        allocation = strategy(found)
        assert allocation.chosen.tolist() == [True, False, True], name
        assert allocation.bound == pytest.approx(8), name


def test_different_blocks_may_rest_on_different_certificates() -> None:
    # One of each vector's certificates is enough; no certificate is within both vectors.
    found = problem([1, 1], row([[5, 5], [5, 5]], [[10, 1], [1, 10]]))
    least = replace(found.rows[0], left=found.rows[0].left.min(axis=0, keepdims=True))
    assert greedy(found).all()
    for name, strategy in STRATEGIES.items():
        assert strategy(found).utility(found) == 2, name
    assert not greedy(replace(found, rows=(least,))).any()


def test_a_quantum_too_much_is_too_much() -> None:
    half = 5 * 10**17
    found = problem([2, 2, 3], row([[half], [half], [half + 1]], [[2 * half]]))
    assert exact(found).chosen.tolist() == [True, True, False]
    assert exact(found).bound == pytest.approx(4)
    several = problem([2, 2, 3], row([[half, 9]] * 2 + [[half + 1, 9]], [[2 * half, 10]]))
    assert exact(several).chosen.tolist() == [True, True, False]


@settings(max_examples=60, deadline=None)
@given(rounds())
def test_prices_are_one_a_row(found: Problem) -> None:
    for name in ("price", "exact"):
        prices = STRATEGIES[name](found).prices
        assert prices.shape == (len(found.rows),) and (prices >= 0).all()


@settings(max_examples=60, deadline=None)
@given(rounds())
def test_price_is_never_behind_efficient(found: Problem) -> None:
    worths = [STRATEGIES[name](found).utility(found) for name in ("efficient", "price", "exact")]
    assert worths == sorted(worths)


def test_nobody_asks() -> None:
    for name, strategy in STRATEGIES.items():
        allocation = strategy(problem([]))
        assert len(allocation.chosen) == 0 and allocation.bound == 0, name


def test_fair_takes_the_smallest_and_efficient_the_worthiest() -> None:
    found = problem([9, 1, 1, 1], row([[10], [4], [4], [2]], [[10]]))
    assert STRATEGIES["first-come"](found).chosen.tolist() == [True, False, False, False]
    assert STRATEGIES["fair"](found).chosen.tolist() == [False, True, True, True]
    assert STRATEGIES["efficient"](found).chosen.tolist() == [True, False, False, False]


def test_canary_forgetting_a_vector_is_caught() -> None:
    """A greedy that looks at the first vector of a row only breaks the naive check."""
    found = problem([1, 1], row([[5, 5], [5, 5]], [[10, 1], [1, 5]]))
    forgetful = replace(found, rows=(replace(found.rows[0], left=found.rows[0].left[:1]),))
    assert not knapsack.fits(found, np.flatnonzero(greedy(forgetful)).tolist())
    assert knapsack.fits(found, np.flatnonzero(greedy(found)).tolist())


def test_canary_a_bound_with_the_elementwise_minimum_is_caught() -> None:
    """A bound in which all vectors of a row rest on one certificate is below the best."""
    found = problem([1, 1], row([[5, 5], [5, 5]], [[10, 1], [1, 10]]))
    least = replace(found.rows[0], left=found.rows[0].left.min(axis=0, keepdims=True))
    strict = bound_of(Scale(table_of(replace(found, rows=(least,))))).value
    assert strict < knapsack.best(found) <= bound_of(Scale(table_of(found))).value


def test_canary_a_bound_in_one_column_is_caught() -> None:
    """A line in one column is no bound: the best choice may rest on another."""
    found = problem([1, 1], row([[5, 1], [5, 1]], [[5, 2]]))
    table = table_of(found)
    assert shares(table, np.array([0]), np.array([0])).sum() > 1 == knapsack.best(found) - 1
    assert shares(table, np.array([0])).sum() <= 1


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_exact_does_not_depend_on_what_a_utility_is_counted_in(unit: float) -> None:
    costs = [[6], [5], [5], [4]]
    found = problem([u * unit for u in (6.0, 5.0, 5.0, 1.0)], row(costs, [[10]]))
    assert np.flatnonzero(exact(found).chosen).tolist() == [1, 2]
