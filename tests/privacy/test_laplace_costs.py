"""Laplace noise in ρ and μ² against its own divergences and trade-off (tighter-costs.md)."""

from __future__ import annotations

import random
from fractions import Fraction

import mpmath as mp
import pytest
from tests.reference import divergences, tighter_costs

from dpolicy.privacy.certificates import MU_SQUARED, PURE, QUANTA_PER_UNIT, RHO, renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.mechanisms.cost_rules import CostRules
from dpolicy.privacy.mechanisms.laplace import Laplace
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

AR = NeighbouringRelation.ADD_REMOVE
CERTIFICATES = (PURE, RHO, MU_SQUARED, renyi("2.5"))


def charged(e: Fraction, rules: CostRules = CostRules.SECOND, k: int = 1) -> tuple[int, ...]:
    return cost(Laplace(k / e), k, AR, CERTIFICATES, rules).amounts


@pytest.mark.parametrize("seed", range(8))
def test_rho_and_mu_are_the_smallest_that_hold(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(8):
        e = Fraction(f"{10 ** rng.uniform(-2, 1.2):.5g}")
        exact = divergences.real(e)
        (_, rho, mu_squared, _) = charged(e, k=rng.choice([1, 1, 7]))
        orders = [1 + mp.mpf(10) ** rng.uniform(-6, 3) for _ in range(12)]
        rates = [divergences.laplace(exact, order) / order for order in orders]
        assert max(rates) * QUANTA_PER_UNIT <= rho
        least = exact - 1 + mp.exp(-exact)
        assert rho <= least * QUANTA_PER_UNIT * (1 + mp.mpf("1e-9")) + 1
        mu = mp.sqrt(mp.mpf(mu_squared) / QUANTA_PER_UNIT)
        levels = [mp.mpf(rng.random()) for _ in range(12)] + [mp.exp(-exact / 2) / 2]
        gaps = [
            tighter_costs.laplace_trade_off(exact, level)
            - tighter_costs.normal_trade_off(mu, level)
            for level in levels
        ]
        assert min(gaps) >= 0
        smaller = tighter_costs.normal_trade_off(mu * (1 - mp.mpf("1e-5")), levels[-1])
        assert smaller > tighter_costs.laplace_trade_off(exact, levels[-1])


def test_costs_fall_as_the_page_states() -> None:
    for e, rho, mu_squared in (("0.5", 0.107, 0.316), ("1", 0.368, 1.061), ("2", 1.135, 3.243)):
        first, second = (charged(Fraction(e), rules) for rules in CostRules)
        assert second[1] / QUANTA_PER_UNIT == pytest.approx(rho, abs=6e-4)
        assert second[2] / QUANTA_PER_UNIT == pytest.approx(mu_squared, abs=6e-4)
        assert second[0] == first[0] and second[3] == first[3]
        assert second[1] < first[1] and second[2] < first[2]


@pytest.mark.parametrize("seed", range(5))
def test_several_coordinates_cost_no_more_than_one(seed: int) -> None:
    """Shares of ε add up in ρ and in μ² to less than their sum."""
    rng = random.Random(seed)
    shares = [Fraction(rng.randint(1, 2000), 1000) for _ in range(rng.randint(2, 5))]
    whole = charged(sum(shares, Fraction(0)))
    parts = [charged(share) for share in shares]
    for column in (1, 2):
        assert sum(part[column] for part in parts) <= whole[column] + len(parts)


def test_smaller_values_are_no_bounds() -> None:
    """Canaries: 1 % less in ρ, and the μ² = 2ρ of a Gaussian with the same ρ."""
    e = mp.mpf(3)
    rho = e - 1 + mp.exp(-e)
    order = mp.mpf("1.0001")
    assert divergences.laplace(e, order) > order * rho * mp.mpf("0.99")
    level = mp.exp(-e / 2) / 2
    noise = tighter_costs.laplace_trade_off(e, level)
    assert tighter_costs.normal_trade_off(mp.sqrt(2 * rho), level) > noise


def test_extreme_parameters_have_costs() -> None:
    for e in ("1e-9", "1e-300", "50", "2000", "1e5", "1e30"):
        first, second = (charged(Fraction(e), rules) for rules in CostRules)
        assert all(0 <= a <= b for a, b in zip(second, first, strict=True))
