"""Limits of reserves and displayed ε with 50 digits: rounded against the spender, and close."""

from __future__ import annotations

from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.divergences import Real, gaussian_delta, real

from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.certificates import QUANTA_PER_UNIT
from dpolicy.privacy.conversion import log_fraction
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.reserves.ladder import LADDER, LEAK_RATE, reserve_quanta
from dpolicy.privacy.reserves.reserve_limits import (
    EPSILON_STEP,
    smallest_epsilon,
    variance_within,
)
from dpolicy.privacy.shares.anchored_shares import anchored_shares
from dpolicy.privacy.shares.chains import DeltaShares
from dpolicy.privacy.thresholds import (
    DEFAULT_ORDERS,
    Profile,
    bound_for_budget,
    reserves_mass,
)

EPSILONS = st.fractions(0, 40, max_denominator=1000)
MASSES = st.builds(lambda n, p: Fraction(n, 10**p), st.integers(1, 99), st.integers(4, 14))


def needed_mass(variance: Real, epsilon: Real) -> Real:
    """Return G(R, ε) + τ·R."""
    return gaussian_delta(mp.sqrt(variance), epsilon) + mp.mpf(LEAK_RATE) * variance


@settings(max_examples=150, deadline=None)
@given(EPSILONS, MASSES)
def test_the_admitted_variance_is_rounded_down(epsilon: Fraction, mass: Fraction) -> None:
    quanta = variance_within(epsilon, mass)
    if quanta:
        variance = mp.mpf(quanta) / QUANTA_PER_UNIT
        assert needed_mass(variance, real(epsilon)) <= real(mass)
    # ε and the mass are rounded to 8 digits, and R grows at most by the power 2 of both.
    above = (mp.mpf(quanta) + 2) / QUANTA_PER_UNIT * (1 + mp.mpf("1e-6"))
    assert needed_mass(above, real(epsilon)) > real(mass)


@settings(max_examples=300, deadline=None)
@given(EPSILONS, MASSES, st.integers(1, 30), st.integers(1, 30))
def test_the_admitted_variance_never_falls(
    epsilon: Fraction, mass: Fraction, first: int, second: int
) -> None:
    larger = epsilon * (1 + Fraction(1, 10**first)), mass * (1 + Fraction(1, 10**second))
    assert variance_within(epsilon, mass) <= variance_within(epsilon, larger[1])
    assert variance_within(epsilon, larger[1]) <= variance_within(*larger)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 20 * QUANTA_PER_UNIT), MASSES)
def test_the_displayed_epsilon_is_rounded_up(variance: int, mass: Fraction) -> None:
    quanta = smallest_epsilon(variance, log_fraction(mass))
    size = mp.mpf(variance) / QUANTA_PER_UNIT
    if quanta == INFINITE:
        assert mp.mpf(LEAK_RATE) * size >= real(mass) * (1 - mp.mpf("1e-9"))
        return
    epsilon = mp.mpf(quanta) / QUANTA_PER_UNIT
    assert needed_mass(size, epsilon) <= real(mass)
    if quanta:
        below = epsilon * (1 - mp.mpf("1e-9")) - mp.mpf(2 * EPSILON_STEP) / QUANTA_PER_UNIT
        assert below <= 0 or needed_mass(size, below) > real(mass)


def test_no_variance_needs_no_epsilon() -> None:
    assert smallest_epsilon(0, log_fraction(Fraction(1, 10**9))) == 0
    assert smallest_epsilon(1, log_fraction(Fraction(0))) == INFINITE
    assert variance_within(Fraction(3), Fraction(0)) == -1


@pytest.mark.parametrize(
    ("profile", "shares", "share"),
    ((Profile.ANCHORED, anchored_shares(DEFAULT_ORDERS), "0.3"), (Profile.GAUSSIAN, None, "0.8")),
)
def test_all_reserves_share_one_part_of_delta(
    profile: Profile, shares: DeltaShares | None, share: str
) -> None:
    budget = EpsilonDelta(Fraction(3), Fraction("1e-7"))
    mass = reserves_mass(budget, profile, Fraction(1, 4), shares)
    assert mass == Fraction(share) * Fraction(3, 4) * budget.delta
    bound = bound_for_budget(budget, profile, DEFAULT_ORDERS, Fraction(1, 4), shares)
    limits = {certificate: limit for ((certificate, limit),) in bound.clauses}
    totals = {limits[c] + reserve_quanta(c) for c in LADDER if c in limits}
    assert totals == {variance_within(budget.epsilon, mass)}
    assert LADDER[-1] not in limits, "a reserve above the admitted variance is not offered"
    profiles = set(Profile) - {Profile.GAUSSIAN}
    without = (bound_for_budget(budget, p, DEFAULT_ORDERS) for p in profiles)
    assert not any(c in LADDER for b in without for ((c, _),) in b.clauses)
