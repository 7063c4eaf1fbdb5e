"""Texts of numbers: a loss is never shown too small, and a budget never too large."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpolicy.privacy.number_text import format_down, format_share, format_up, format_up_within

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


@given(numbers, st.sampled_from([17, 20, 25]))
def test_a_long_text_bounds_its_number(value: Fraction, digits: int) -> None:
    assert Fraction(format_down(value, digits)) <= value <= Fraction(format_up(value, digits))


@given(st.fractions(min_value=0, max_value=100, max_denominator=10**12))
def test_a_loss_within_its_budget_has_a_text_within_the_budget(limit: Fraction) -> None:
    loss = limit - Fraction(1, 10**13) if limit else limit
    assert loss <= Fraction(format_up_within(loss, limit)) <= limit
    assert Fraction(format_up_within(limit + 1, limit)) > limit


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (1e-9, "1 %"),
        (0.5, "50 %"),
        (0.5000000000000001, "50 %"),
        (0.8901, "90 %"),
        (0.9966, "99.7 %"),
        (Fraction(99960, 100000), "99.96 %"),
        (0.999985, "99.999 %"),
        (0.9999999999999999, "< 100 %"),
        (1, "100 %"),
        (1.0, "100 %"),
        (1.00001, "100.1 %"),
        (1.5, "150 %"),
        (math.inf, "∞"),
        (None, "–"),
    ],
)
def test_only_a_full_budget_is_used_to_100_percent(share: float | None, text: str) -> None:
    assert format_share(share) == text


@given(st.fractions(min_value=0, max_value=2))
def test_a_share_is_rounded_up(share: Fraction) -> None:
    text = format_share(share)
    if text.startswith("<"):
        assert Fraction(99_999, 100_000) < share < 1
        return
    shown = Fraction(text.removesuffix(" %")) / 100
    assert share <= shown <= share + Fraction(1, 100)
    assert (shown < 1) == (share < 1)
