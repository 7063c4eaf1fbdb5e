"""Losses against plain fractions (T5): any order, any voids, never below the exact sum."""

from __future__ import annotations

from fractions import Fraction

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
    Loss,
    add,
    amount,
    least,
    loss,
    most,
    no_more,
    scale,
    subtract,
    total,
    unbounded,
    zero,
)

CERTIFICATES = (PURE, RHO, MU_SQUARED, renyi(2), renyi("2.5"))

fractions = st.fractions(min_value=0, max_value=SATURATION * 2)
entries = st.tuples(
    st.tuples(*[st.none() | fractions for _ in CERTIFICATES]),
    st.fractions(min_value=0, max_value=1),
)


def of(entry: tuple[tuple[Fraction | None, ...], Fraction]) -> Loss:
    amounts = [None if value is None else quanta_up(value) for value in entry[0]]
    return loss(CERTIFICATES, amounts, entry[1])


losses = st.builds(of, entries)


@settings(deadline=None)
@given(losses, losses, losses)
def test_addition_is_commutative_and_associative(a: Loss, b: Loss, c: Loss) -> None:
    assert add(a, b) == add(b, a)
    assert add(add(a, b), c) == add(a, add(b, c)) == total([c, a, b], CERTIFICATES)
    assert add(a, zero(CERTIFICATES)) == a


@settings(deadline=None)
@given(losses, losses)
def test_voiding_is_exact_even_for_infinities(a: Loss, b: Loss) -> None:
    assert subtract(add(a, b), b) == a
    assert subtract(add(a, b), a) == b


@settings(deadline=None)
@given(losses, st.integers(min_value=0, max_value=6))
def test_scaling_is_repeated_addition(a: Loss, times: int) -> None:
    assert scale(a, times) == total([a] * times, CERTIFICATES)


@settings(deadline=None)
@given(st.lists(entries, max_size=12), st.randoms())
def test_never_below_the_exact_sum_and_free_of_order(
    given_entries: list[tuple[tuple[Fraction | None, ...], Fraction]], rng: object
) -> None:
    exact, summed = ExactLoss(), zero(CERTIFICATES)
    for entry in given_entries:
        exact.add(*entry)
        summed = add(summed, of(entry))
    shuffled = list(given_entries)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert total(map(of, shuffled), CERTIFICATES) == summed
    for entry in shuffled[: len(shuffled) // 2]:
        exact.void(*entry)
        summed = subtract(summed, of(entry))
    assert summed.delta == exact.delta()
    for position, quanta in enumerate(summed):
        bound = exact.total(position)
        if bound is None:
            assert quanta is None
        elif quanta is not None:
            assert 0 <= quanta - bound * QUANTA_PER_UNIT < max(1, len(exact.entries))
        else:  # something saturated
            assert bound >= SATURATION - 1


@settings(deadline=None)
@given(losses, losses)
def test_least_and_most_are_the_lattice_of_no_more(a: Loss, b: Loss) -> None:
    b = Loss(b.certificates, b.amounts, b.infinite, a.delta)
    assert no_more(least(a, b), a) and no_more(least(a, b), b)
    assert no_more(a, most(a, b)) and no_more(b, most(a, b))
    assert no_more(a, b) == (least(a, b) == least(a, a)) == (most(a, b) == most(b, b))
    assert no_more(a, add(a, b))


def test_decimals_are_exact() -> None:
    tenth = loss((PURE,), [quanta_up(Fraction("0.1"))])
    assert amount(scale(tenth, 10), PURE) == QUANTA_PER_UNIT


def test_saturation() -> None:
    limit = SATURATION * QUANTA_PER_UNIT
    assert amount(loss((PURE,), [limit - 1]), PURE) == limit - 1
    assert amount(loss((PURE,), [limit]), PURE) is None
    assert loss((PURE, RHO), [limit, 3]) == loss((PURE, RHO), [None, 3])
    finite = loss((PURE,), [limit - 1])
    assert amount(add(finite, finite), PURE) == 2 * limit - 2  # sums stay exact


def test_amounts_that_are_not_kept_are_unknown() -> None:
    assert amount(zero((PURE,)), RHO) is None
    assert list(unbounded((PURE, RHO))) == [None, None]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: subtract(zero((PURE,)), loss((PURE,), [1])),
        lambda: subtract(zero((PURE,)), unbounded((PURE,))),
        lambda: subtract(zero((PURE,)), Loss((PURE,), (0,), (), Fraction(1, 9))),
        lambda: loss((PURE,), [-1]),
        lambda: loss((PURE,), []),
        lambda: scale(zero((PURE,)), -1),
        lambda: add(zero((PURE,)), zero((RHO,))),
        lambda: least(zero((PURE,)), Loss((PURE,), (0,), (), Fraction(1, 9))),
    ],
)
def test_broken_promises_stop(wrong: object) -> None:
    with pytest.raises(InvariantBroken):
        wrong()  # type: ignore[operator]
