"""Shares of δ: sound, monotone in (ε, δ), and equal to their naive twin."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp
from tests.reference import chains as twin

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.certificates import PURE, renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.mechanisms.gaussian import DpSgd
from dpolicy.privacy.reserves import ladder as reserves
from dpolicy.privacy.shares.anchored_shares import (
    LADDER,
    LADDER_CHAIN,
    anchored_shares,
    spread_chain,
)
from dpolicy.privacy.shares.chains import Chain, DeltaShares, Handover, order_limits, single_order
from dpolicy.privacy.thresholds import (
    DEFAULT_ORDERS,
    BudgetBound,
    Profile,
    bound_for_budget,
    implies_bound,
)
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

MASS = Fraction(9, 10)
ANCHORED = anchored_shares(DEFAULT_ORDERS)
SHARES: tuple[DeltaShares, ...] = (
    ANCHORED,
    anchored_shares((Fraction("1.25"), Fraction(4), Fraction(100))),
    ((LADDER_CHAIN, Fraction(1)),),
    ((single_order(Fraction(11)), Fraction(1, 3)), (spread_chain(LADDER), Fraction(2, 3))),
)
EPSILONS = st.one_of(
    st.fractions(0, 40, max_denominator=10**6), st.integers(-3, 5).map(lambda n: Fraction(10) ** n)
)
DELTAS = st.builds(
    lambda digits, power: Fraction(digits, 1000) / 10**power,
    st.integers(1000, 9999),
    st.integers(1, 20),
)
#: Factors by which a budget grows: from far beyond the precision of floats to a factor of 1,000.
GROWTH = st.one_of(
    st.just(Fraction(1)),
    st.integers(1, 45).map(lambda n: 1 + Fraction(1, 10**n)),
    st.fractions(1, 1000, max_denominator=1000),
)


def anchored(epsilon: Fraction, delta: Fraction, shares: DeltaShares | None) -> BudgetBound:
    budget = EpsilonDelta(epsilon, delta)
    return bound_for_budget(budget, Profile.ANCHORED, DEFAULT_ORDERS, None, shares)


def admitted_steps(bound: BudgetBound, noise: str, rate: str) -> int:
    """Return how many steps of DP-SGD fit a bound."""
    certificates = tuple(certificate for ((certificate, _),) in bound.clauses)
    step = DpSgd(Fraction(noise), 1, sampling_rate=Fraction(rate))
    each = cost(step, 1, NeighbouringRelation.ADD_REMOVE, certificates).amounts
    limits = [limit for ((_, limit),) in bound.clauses]
    return max(limit // amount for limit, amount in zip(limits, each, strict=True))


@settings(max_examples=150, deadline=None)
@given(EPSILONS, DELTAS, st.sampled_from(SHARES))
def test_thresholds_are_those_of_the_twin_rounded_down(
    epsilon: Fraction, delta: Fraction, shares: DeltaShares
) -> None:
    exact = twin.limits(epsilon, delta, shares, MASS)
    limits = dict(order_limits(epsilon, delta, shares, MASS))
    assert limits.keys() == exact.keys()
    for order, limit in limits.items():
        with mp.workdps(60):
            assert 0 <= exact[order] - twin.real(limit) < mp.mpf("1e-19")


@settings(max_examples=150, deadline=None)
@given(EPSILONS, DELTAS, st.sampled_from(SHARES))
def test_the_masses_of_all_orders_stay_within_their_part(
    epsilon: Fraction, delta: Fraction, shares: DeltaShares
) -> None:
    """The union of filters (theory 2.3), from the computed thresholds: Σ κ e^((α−1)(b−ε)) ≤ δ."""
    with mp.workdps(60):
        total = mp.mpf(0)
        for order, limit in order_limits(epsilon, delta, shares, MASS):
            excess, alpha = twin.real(order - 1), twin.real(order)
            kappa = (1 - 1 / alpha) ** excess / alpha
            total += kappa * mp.e ** (excess * (twin.real(limit) - twin.real(epsilon)))
        assert total <= twin.real(MASS * delta)


def find_fall(shares: DeltaShares, epsilons: list[Fraction], delta: Fraction) -> str | None:
    """Return an order whose threshold falls or disappears while ε grows."""
    before: dict[Fraction, Fraction] = {}
    for epsilon in epsilons:
        after = dict(order_limits(epsilon, delta, shares, MASS))
        for order, limit in before.items():
            if order not in after or after[order] < limit:
                return f"order {order} at ε {epsilon}"
        before = after
    return None


@settings(max_examples=400, deadline=None)
@given(EPSILONS, DELTAS, GROWTH, GROWTH, st.sampled_from(SHARES))
def test_a_larger_budget_allows_whatever_a_smaller_one_allows(
    epsilon: Fraction, delta: Fraction, more: Fraction, often: Fraction, shares: DeltaShares
) -> None:
    larger = epsilon * more, min(delta * often, Fraction(1))
    assert implies_bound(anchored(epsilon, delta, shares), anchored(*larger, shares))
    limits = dict(order_limits(*larger, shares, MASS))
    for order, limit in order_limits(epsilon, delta, shares, MASS):
        assert limit <= limits[order], "also before rounding to quanta"


def test_canary_a_free_anchor_is_not_monotone() -> None:
    """The split of defaults 2: α* moves with ε, so a larger budget does not offer its order."""
    delta = Fraction("1e-7")
    small, large = (anchored(Fraction(e), delta, None) for e in ("3", "3.1"))
    assert not implies_bound(small, large)
    assert implies_bound(*(anchored(Fraction(e), delta, ANCHORED) for e in ("3", "3.1")))


def test_canary_a_chain_that_hands_over_too_fast_is_not_monotone() -> None:
    """The check of the slope is needed, and `find_fall` detects what it prevents."""
    epsilons = [Fraction(n, 20) for n in range(1, 200)]
    last = Handover(Fraction(2))
    slow = Handover(Fraction(8), Fraction(2), Fraction(7))
    assert find_fall(((Chain("slow", (slow, last)), MASS),), epsilons, Fraction("1e-7")) is None
    with pytest.raises(InvariantBroken, match="order 8 hands over faster"):
        Handover(Fraction(8), Fraction(2), Fraction(8))
    fast = Handover(Fraction(8), Fraction(2), Fraction(7))
    object.__setattr__(fast, "slope", Fraction(8))
    fall = find_fall(((Chain("fast", (fast, last)), MASS),), epsilons, Fraction("1e-7"))
    assert fall is not None and fall.startswith("order 8 at")


@settings(max_examples=50, deadline=None)
@given(EPSILONS, DELTAS)
@example(Fraction(10**9), Fraction(1, 10**400))
@example(Fraction(0), Fraction(1, 2))
def test_all_rules_share_the_orders_of_the_ladder_and_the_spread(
    epsilon: Fraction, delta: Fraction
) -> None:
    offered = {c for ((c, _),) in anchored(epsilon, delta, ANCHORED).clauses}
    orders = {*map(renyi, LADDER), *map(renyi, DEFAULT_ORDERS)}
    assert offered <= {PURE, *orders, *reserves.LADDER}


@pytest.mark.parametrize(
    ("epsilon", "delta", "noise", "rate", "classic", "least"),
    (
        ("1", "1e-5", "1", "0.001", 0, 1),
        ("2", "1e-6", "0.8", "0.001", 1488, 1488),
        ("8", "1e-5", "0.7", "0.01", 1838, 1770),
        ("8", "1e-5", "1", "0.01", 11_461, 11_461),
    ),
)
def test_low_orders_carry_trainings_with_little_noise(
    epsilon: str, delta: str, noise: str, rate: str, classic: int, least: int
) -> None:
    """At least what `classic` admits, except for noise 0.7: the reserves do not help there."""
    bound = anchored(Fraction(epsilon), Fraction(delta), ANCHORED)
    assert admitted_steps(bound, noise, rate) >= least
    budget = EpsilonDelta(Fraction(epsilon), Fraction(delta))
    of_classic = bound_for_budget(budget, Profile.CLASSIC, DEFAULT_ORDERS)
    assert admitted_steps(of_classic, noise, rate) == classic
