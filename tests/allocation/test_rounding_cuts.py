"""Rounding cuts: no integer solution violates them, and the relaxed solution does."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpolicy.allocation.solving.rounding_cuts import rounding_cuts

SHARES = st.one_of(
    st.sampled_from([0.0, 0.1, 0.2, 0.25, 1 / 3, 0.5, 0.51, 0.7, 1.0, 2.0]),
    st.floats(0.01, 1.2),
)


def integer_solutions(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return every integer solution of Σ shares · x ≤ 1."""
    solutions = np.array(list(product([0.0, 1.0], repeat=shares.shape[1])))
    satisfied: NDArray[np.bool_] = np.all(solutions @ shares.T <= 1, axis=1)
    return solutions[satisfied]


@st.composite
def tight_relaxations(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw inequalities, and a relaxed solution that is tight in the first of them."""
    size = draw(st.integers(2, 8))
    row = st.lists(SHARES, min_size=size, max_size=size)
    shares = np.array(draw(st.lists(row, min_size=1, max_size=3)))
    levels = np.array(
        draw(st.lists(st.sampled_from([0, 0.3, 0.5, 0.8, 1]), min_size=size, max_size=size))
    )
    utilisation = float(shares[0] @ levels)
    return shares, np.minimum(levels / utilisation if utilisation > 1 else levels, 1)


def cuts_off_integer_solution(shares: NDArray[np.float64], x: NDArray[np.float64]) -> bool:
    values, limits = rounding_cuts(shares, x)
    solutions = integer_solutions(shares)
    return bool((solutions @ values.T > limits + 1e-12).any())


@settings(max_examples=500, deadline=None)
@given(tight_relaxations())
def test_integer_solutions_satisfy_cuts(
    drawn: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    assert not cuts_off_integer_solution(*drawn)


@settings(max_examples=200, deadline=None)
@given(tight_relaxations())
def test_the_relaxed_solution_violates_cuts(
    drawn: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    shares, x = drawn
    values, limits = rounding_cuts(shares, x)
    assert (values @ x > limits).all()


def test_two_shares_above_one_half_exclude_each_other() -> None:
    values, limits = rounding_cuts(np.array([[0.6, 0.6, 0.6]]), np.array([1.0, 2 / 3, 0.0]))
    assert len(values) == 1
    assert (integer_solutions(np.array([[0.6, 0.6, 0.6]])) @ values.T <= limits + 1e-12).all()


def test_rounding_up_coefficients_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary: coefficients rounded up instead of down cut off integer solutions."""
    floor = np.floor

    def up(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.ceil(numbers) if np.ndim(numbers) == 2 else floor(numbers)

    monkeypatch.setattr(np, "floor", up)
    drawn = np.random.default_rng(0)
    caught = 0
    for _ in range(200):
        shares = drawn.choice([0.2, 0.3, 0.45, 0.55, 0.8], (1, 6))
        x = drawn.random(6)
        caught += cuts_off_integer_solution(shares, np.minimum(x / float(shares[0] @ x), 1))
    assert caught
