"""Texts of numbers: a loss is never shown too small, and a budget never too large."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpolicy.privacy.number_text import format_down, format_up

numbers = st.fractions(min_value=0, max_value=10**6, max_denominator=10**15)


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (math.log(3), "1.09862", "1.09861228866"),
        (Fraction(1, 3), "0.333334", "0.333333333333"),
        (Fraction("1.0000049"), "1.00001", "1.0000049"),
        (Fraction("1e-9"), "1e-09", "1e-09"),
        (0.1, "0.1", "0.1"),
        (3, "3", "3"),
        (0, "0", "0"),
        (math.inf, "∞", "∞"),
    ],
)
def test_numbers_are_rounded_against_the_spender(value: float, up: str, down: str) -> None:
    assert format_up(value) == up
    assert format_down(value) == down


@given(numbers)
def test_a_text_bounds_its_number(value: Fraction) -> None:
    up, down = Fraction(format_up(value)), Fraction(format_down(value))
    assert down <= value <= up
    assert up <= value * (1 + Fraction(1, 10**5))
    assert down >= value * (1 - Fraction(1, 10**11))


@given(st.floats(min_value=0, max_value=1e12, allow_subnormal=False))
def test_a_text_bounds_the_printed_decimal_of_a_float(value: float) -> None:
    assert Fraction(format_down(value)) <= Fraction(repr(value)) <= Fraction(format_up(value))
