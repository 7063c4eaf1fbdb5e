"""Sharper lines: no whole choice that keeps the old ones breaks them, and they say more."""

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


def whole_choices(lines: NDArray[np.float64]) -> NDArray[np.float64]:
    """Every whole choice that keeps the lines."""
    every = np.array(list(product([0.0, 1.0], repeat=lines.shape[1])))
    kept: NDArray[np.bool_] = np.all(every @ lines.T <= 1, axis=1)
    return every[kept]


@st.composite
def full(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lines, and a choice in parts that fills the first of them."""
    size = draw(st.integers(2, 8))
    line = st.lists(SHARES, min_size=size, max_size=size)
    lines = np.array(draw(st.lists(line, min_size=1, max_size=3)))
    parts = np.array(
        draw(st.lists(st.sampled_from([0, 0.3, 0.5, 0.8, 1]), min_size=size, max_size=size))
    )
    load = float(lines[0] @ parts)
    return lines, np.minimum(parts / load if load > 1 else parts, 1)


def broken_by_whole(lines: NDArray[np.float64], x: NDArray[np.float64]) -> bool:
    values, most = rounding_cuts(lines, x)
    every = whole_choices(lines)
    return bool((every @ values.T > most + 1e-12).any())


@settings(max_examples=500, deadline=None)
@given(full())
def test_whole_choices_keep_sharper_lines(
    drawn: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    assert not broken_by_whole(*drawn)


@settings(max_examples=200, deadline=None)
@given(full())
def test_the_choice_in_parts_breaks_them(
    drawn: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    lines, x = drawn
    values, most = rounding_cuts(lines, x)
    assert (values @ x > most).all()


def test_two_that_take_more_than_half_exclude_each_other() -> None:
    values, most = rounding_cuts(np.array([[0.6, 0.6, 0.6]]), np.array([1.0, 2 / 3, 0.0]))
    assert len(values) == 1
    assert (whole_choices(np.array([[0.6, 0.6, 0.6]])) @ values.T <= most + 1e-12).all()


def test_a_rounding_that_rounds_too_far_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary: coefficients rounded up instead of down cut off whole choices."""
    floor = np.floor

    def up(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.ceil(numbers) if np.ndim(numbers) == 2 else floor(numbers)

    monkeypatch.setattr(np, "floor", up)
    drawn = np.random.default_rng(0)
    caught = 0
    for _ in range(200):
        lines = drawn.choice([0.2, 0.3, 0.45, 0.55, 0.8], (1, 6))
        x = drawn.random(6)
        caught += broken_by_whole(lines, np.minimum(x / float(lines[0] @ x), 1))
    assert caught
