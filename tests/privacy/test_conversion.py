"""Conversions against 50 digits: never below, and hardly above (theory 1.2, 1.3)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction

import mpmath as mp
import pytest
from tests.reference import divergences as exact
from tests.reference.conversions import (
    epsilon_at,
    float_up,
    gaussian_delta,
    implied_delta,
    mu_within,
    renyi_to_epsilon_classic,
    zcdp_to_epsilon_bun_steinke,
)

from dpolicy.privacy.certificates import MU_SQUARED, PURE, QUANTA_PER_UNIT, RHO, quanta_up, renyi
from dpolicy.privacy.conversion import (
    fraction_up,
    gaussian_log_delta,
    gaussian_to_epsilon,
    group_delta,
    pure_to_mu_squared,
    renyi_to_epsilon,
    zcdp_to_epsilon,
)
from dpolicy.privacy.loss import Loss, make_loss
from dpolicy.privacy.normal_distribution import TAIL_ERROR, log_tail, mills

DELTAS = [Fraction(1, 10**n) for n in (2, 5, 7, 12, 40, 300, 400)]


def decimal(rng: random.Random, low: float, high: float) -> Fraction:
    return Fraction(f"{10 ** rng.uniform(low, high):.5e}")


@pytest.mark.parametrize("seed", range(300))
def test_renyi_conversions(seed: int) -> None:
    rng = random.Random(seed)
    order, r, delta = 1 + decimal(rng, -2, 4), decimal(rng, -9, 3), rng.choice(DELTAS)
    a, d = exact.real(order), exact.real(delta)
    classic = exact.real(r) + mp.log(1 / d) / (a - 1)
    improved = exact.real(r) + mp.log(1 - 1 / a) + mp.log(1 / (a * d)) / (a - 1)
    assert classic <= renyi_to_epsilon_classic(order, r, delta) <= classic * (1 + mp.mpf("1e-12"))
    epsilon = renyi_to_epsilon(order, r, delta)
    assert max(improved, 0) <= epsilon <= max(improved, 0) + classic * mp.mpf("1e-12")


@pytest.mark.parametrize("seed", range(40))
def test_zcdp_is_the_minimum_over_orders(seed: int) -> None:
    rng = random.Random(seed)
    rho, delta = decimal(rng, -6, 3), rng.choice(DELTAS)
    epsilon = zcdp_to_epsilon(rho, delta)
    orders = [1 + Fraction(10**n) for n in range(6)]
    candidates = [renyi_to_epsilon(order, rho * order, delta) for order in orders]
    assert epsilon <= min(candidates) * (1 + 1e-12)
    assert epsilon <= zcdp_to_epsilon_bun_steinke(rho, delta)
    # No order gives a smaller ε: compare with a fine grid around the optimum.
    best = min(
        exact.real(rho) * a + mp.log(1 - 1 / a) + mp.log(1 / (a * exact.real(delta))) / (a - 1)
        for a in (1 + mp.mpf(10) ** (mp.mpf(n) / 40) for n in range(-120, 240))
    )
    assert max(best, 0) * (1 - mp.mpf("1e-2")) <= epsilon <= max(best, 0) * (1 + mp.mpf("1e-9"))


@pytest.mark.parametrize("seed", range(200))
def test_gaussian_delta_is_stable(seed: int) -> None:
    rng = random.Random(seed)
    mu, epsilon = 10 ** rng.uniform(-3, 1.3), 10 ** rng.uniform(-3, 2)
    with mp.workdps(400):
        logarithm = mp.log(exact.gaussian_delta(mp.mpf(mu), mp.mpf(epsilon)))
    log_delta = gaussian_log_delta(mu, epsilon)
    assert logarithm <= log_delta <= logarithm + mp.mpf("1e-7") + abs(logarithm) * mp.mpf("1e-12")


@pytest.mark.parametrize("seed", range(60))
def test_gaussian_epsilon_inverts_delta(seed: int) -> None:
    rng = random.Random(seed)
    mu, delta = 10 ** rng.uniform(-2, 1.3), rng.choice(DELTAS)
    epsilon = gaussian_to_epsilon(mu, delta)
    with mp.workdps(900):
        assert exact.gaussian_delta(mp.mpf(mu), mp.mpf(epsilon or 1e-300)) <= exact.real(delta)
        if epsilon:
            less = mp.mpf(epsilon) * (1 - mp.mpf("1e-9"))
            assert exact.gaussian_delta(mp.mpf(mu), less) > exact.real(delta)
        best = mu_within(Fraction(epsilon), delta)
        assert exact.gaussian_delta(mp.mpf(best), mp.mpf(epsilon or 1e-300)) <= exact.real(delta)
    assert not epsilon or mu * (1 - 1e-9) <= best <= mu * (1 + 1e-9)


def test_zero_rho_gives_zero_epsilon() -> None:
    assert zcdp_to_epsilon(Fraction(0), Fraction(1, 10**6)) == 0


def test_without_delta_conversions_are_infinite() -> None:
    nothing = Fraction(0)
    assert renyi_to_epsilon(Fraction(2), Fraction(1), nothing) == math.inf
    assert renyi_to_epsilon_classic(Fraction(2), Fraction(1), nothing) == math.inf
    assert zcdp_to_epsilon(Fraction(1), nothing) == math.inf
    assert gaussian_to_epsilon(1.0, nothing) == math.inf
    assert mu_within(Fraction(1), nothing) == 0


def test_gaussian_conversions_of_a_tiny_mu() -> None:
    assert gaussian_to_epsilon(0.0, Fraction(1, 10**6)) == 0
    assert gaussian_to_epsilon(1e-9, Fraction(1, 10**6)) == 0
    assert gaussian_delta(1.0, 0.0) == pytest.approx(0.3829249, rel=1e-6)
    assert gaussian_delta(100.0, 0.0) == 1


@pytest.mark.parametrize("seed", range(200))
def test_tails_are_accurate(seed: int) -> None:
    x = 10 ** random.Random(seed).uniform(-6, 2)
    ratio = mp.sqrt(mp.pi / 2) * mp.erfc(mp.mpf(x) / mp.sqrt(2)) * mp.exp(mp.mpf(x) ** 2 / 2)
    assert abs(mills(x) / ratio - 1) < TAIL_ERROR
    tail = mp.log(mp.erfc(mp.mpf(x) / mp.sqrt(2)) / 2)
    assert abs(log_tail(x) - tail) < TAIL_ERROR * max(1, abs(tail))


@pytest.mark.parametrize("seed", range(200))
def test_implied_and_group_delta(seed: int) -> None:
    rng = random.Random(seed)
    epsilon, at, delta = decimal(rng, -4, 1), decimal(rng, -4, 1), rng.choice(DELTAS)
    e, other, d = exact.real(epsilon), exact.real(at), exact.real(delta)
    implied = d + (1 - d) * max(0, (mp.exp(e) - mp.exp(other)) / (1 + mp.exp(e)))
    computed_implied = exact.real(implied_delta(epsilon, delta, at))
    assert implied * (1 - mp.mpf("1e-45")) <= computed_implied <= implied * (1 + mp.mpf("1e-9"))
    k = rng.choice([2, 7, 31, 366])
    grown, computed_grown = (
        d * (mp.exp(k * e) - 1) / (mp.exp(e) - 1),
        group_delta(epsilon, delta, k),
    )
    if computed_grown is None:
        assert grown >= 1 - mp.mpf("1e-9")
    else:
        assert grown <= exact.real(computed_grown) <= grown * (1 + mp.mpf("1e-9"))


def test_group_delta_at_the_edges() -> None:
    tiny = Fraction(1, 10**9)
    assert group_delta(Fraction(3), tiny, 1) == tiny
    assert group_delta(Fraction(3), Fraction(0), 99) == 0
    assert group_delta(Fraction(9), tiny, 10**6) is None
    seven = group_delta(0.0, tiny, 7)
    assert seven is not None and 7 * tiny <= seven <= 7 * tiny * (1 + Fraction(1, 10**9))


def test_fractions_from_logarithms_are_not_below() -> None:
    for n in range(300):
        x = -(10 ** random.Random(n).uniform(-6, 3))
        value = mp.exp(mp.mpf(x))
        assert value <= exact.real(fraction_up(x)) <= value * (1 + mp.mpf("1e-9"))


def test_mu_of_a_pure_mechanism_is_increasing() -> None:
    values = [pure_to_mu_squared(10 ** (n / 20)) for n in range(-180, 120)]
    assert values == sorted(values)


@pytest.fixture
def build_loss() -> Callable[..., Loss]:
    certificates = (PURE, RHO, MU_SQUARED, renyi(8))

    def make(*amounts: float | None, delta: Fraction = Fraction(0)) -> Loss:
        quanta = [None if a is None else quanta_up(Fraction(a)) for a in amounts]
        return make_loss(certificates, quanta, delta)

    return make


def test_epsilon_at_uses_the_best_certificate(build_loss: Callable[..., Loss]) -> None:
    delta = Fraction(1, 10**6)
    assert epsilon_at(build_loss(0.5, None, None, None), delta) == 0.5
    rho = epsilon_at(build_loss(None, 0.015, None, None), delta)
    assert rho == pytest.approx(0.77173, abs=1e-5)
    mu = epsilon_at(build_loss(None, 0.015, 0.03, None), delta)
    assert mu == pytest.approx(0.71469, abs=1e-5)
    order = renyi_to_epsilon(Fraction(8), Fraction("0.12"), delta)
    assert epsilon_at(build_loss(None, None, None, 0.12), delta) == pytest.approx(order)
    assert epsilon_at(build_loss(None, None, None, None), delta) == math.inf


def test_the_delta_side_reduces_delta(build_loss: Callable[..., Loss]) -> None:
    delta = Fraction(1, 10**6)
    assert epsilon_at(build_loss(0.5, 0.1, None, None, delta=2 * delta), delta) == math.inf
    assert epsilon_at(build_loss(0.5, 0.0001, None, None, delta=delta), delta) == 0.5
    assert epsilon_at(build_loss(0.5, 0.0001, None, None), Fraction(0)) == 0.5


def test_float_up_rounds_up() -> None:
    for n in range(200):
        value = Fraction(random.Random(n).randrange(10**15), QUANTA_PER_UNIT)
        assert value <= Fraction(float_up(value)) <= value * (1 + Fraction(1, 10**15))


def test_wikimedia_numbers_of_theory_4_6() -> None:
    delta = Fraction(1, 10**6)
    for rho, improved, bun_steinke, gaussian in [
        ("0.015", 0.77173, 0.92546, 0.71469),
        ("14.415", 41.2294, 42.639, 39.2236),
        ("0.735", 6.50237, 7.108, 6.09341),
    ]:
        exact_rho = Fraction(rho)
        assert zcdp_to_epsilon(exact_rho, delta) == pytest.approx(improved, rel=2e-5)
        assert zcdp_to_epsilon_bun_steinke(exact_rho, delta) == pytest.approx(bun_steinke, rel=1e-4)
        mu = math.sqrt(2 * exact_rho)
        assert gaussian_to_epsilon(mu, delta) == pytest.approx(gaussian, rel=2e-5)
    assert zcdp_to_epsilon(Fraction("0.465"), delta) == pytest.approx(5.01, abs=0.01)
