"""Losses against plain fractions (T5): the same in any order, and never below the exact sum."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.exact_loss import ExactLoss

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.certificates import (
    MU_SQUARED,
    PURE,
    QUANTA_PER_UNIT,
    RHO,
    SATURATION,
    quanta_up,
    renyi,
)
from dpolicy.privacy.loss import (
    INFINITE,
    Loss,
    add_losses,
    amount_in,
    elementwise_max,
    elementwise_min,
    is_at_most,
    make_loss,
    unbounded_loss,
    zero_loss,
)
from dpolicy.privacy.loss_arrays import DELTA_QUANTA, add_saturating, loss_to_row, row_to_loss

CERTIFICATES = (PURE, RHO, MU_SQUARED, renyi(2), renyi("2.5"))

fractions = st.fractions(min_value=0, max_value=SATURATION * 2)
entries = st.tuples(
    st.tuples(*[st.none() | fractions for _ in CERTIFICATES]),
    st.fractions(min_value=0, max_value=1),
)


def build_loss(entry: tuple[tuple[Fraction | None, ...], Fraction]) -> Loss:
    amounts = [None if value is None else quanta_up(value) for value in entry[0]]
    return make_loss(CERTIFICATES, amounts, entry[1])


losses = st.builds(build_loss, entries)


@settings(deadline=None)
@given(losses, losses, losses)
def test_addition_is_commutative_and_associative(a: Loss, b: Loss, c: Loss) -> None:
    assert add_losses(a, b) == add_losses(b, a)
    assert add_losses(add_losses(a, b), c) == add_losses(a, add_losses(b, c))
    assert add_losses(a, zero_loss(CERTIFICATES)) == a


@settings(deadline=None)
@given(st.lists(losses, max_size=8))
def test_rows_add_like_losses(terms: list[Loss]) -> None:
    summed, row = zero_loss(CERTIFICATES), loss_to_row(zero_loss(CERTIFICATES))
    for term in terms:
        summed, row = add_losses(summed, term), add_saturating(row, loss_to_row(term))
    from_row = row_to_loss(row, CERTIFICATES)
    assert from_row.amounts == summed.amounts
    delta = min(summed.delta, Fraction(INFINITE, DELTA_QUANTA))
    assert delta <= from_row.delta <= delta + Fraction(len(terms), DELTA_QUANTA)


@settings(deadline=None)
@given(st.lists(entries, max_size=12), st.randoms())
def test_sums_are_never_below_the_exact_sum_in_any_order(
    terms: list[tuple[tuple[Fraction | None, ...], Fraction]], rng: object
) -> None:
    exact, summed = ExactLoss(), zero_loss(CERTIFICATES)
    for entry in terms:
        exact.add(*entry)
        summed = add_losses(summed, build_loss(entry))
    shuffled = list(terms)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert reduce(add_losses, map(build_loss, shuffled), zero_loss(CERTIFICATES)) == summed
    assert summed.delta == exact.delta()
    for position, quanta in enumerate(summed):
        bound = exact.total(position)
        if bound is None:
            assert quanta is None
        elif quanta is not None:
            assert 0 <= quanta - bound * QUANTA_PER_UNIT < max(1, len(exact.entries))
        else:  # an amount saturated
            assert bound >= SATURATION - 1


@settings(deadline=None)
@given(losses, losses)
def test_minimum_and_maximum_are_the_lattice_of_is_at_most(a: Loss, b: Loss) -> None:
    b = Loss(b.certificates, b.amounts, a.delta)
    assert is_at_most(elementwise_min(a, b), a) and is_at_most(elementwise_min(a, b), b)
    assert is_at_most(a, elementwise_max(a, b)) and is_at_most(b, elementwise_max(a, b))
    assert (
        is_at_most(a, b)
        == (elementwise_min(a, b) == elementwise_min(a, a))
        == (elementwise_max(a, b) == elementwise_max(b, b))
    )
    assert is_at_most(a, add_losses(a, b))


def test_decimals_are_exact() -> None:
    tenth = make_loss((PURE,), [quanta_up(Fraction("0.1"))])
    assert amount_in(reduce(add_losses, [tenth] * 10), PURE) == QUANTA_PER_UNIT


def test_saturation() -> None:
    limit = SATURATION * QUANTA_PER_UNIT
    assert amount_in(make_loss((PURE,), [limit - 1]), PURE) == limit - 1
    assert amount_in(make_loss((PURE,), [limit]), PURE) is None
    assert make_loss((PURE, RHO), [limit, 3]) == make_loss((PURE, RHO), [None, 3])
    finite = make_loss((PURE,), [limit - 1])
    assert amount_in(add_losses(finite, finite), PURE) is None


def test_a_missing_certificate_has_no_amount() -> None:
    assert amount_in(zero_loss((PURE,)), RHO) is None
    assert list(unbounded_loss((PURE, RHO))) == [None, None]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: make_loss((PURE,), [-1]),
        lambda: make_loss((PURE,), []),
        lambda: add_losses(zero_loss((PURE,)), zero_loss((RHO,))),
        lambda: elementwise_min(zero_loss((PURE,)), Loss((PURE,), (0,), Fraction(1, 9))),
    ],
)
def test_invalid_losses_raise(wrong: object) -> None:
    with pytest.raises(InvariantBroken):
        wrong()  # type: ignore[operator]
