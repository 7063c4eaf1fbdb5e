"""Discrete Gaussians on Poisson samples, against sums over the integers (tighter-costs.md)."""

from __future__ import annotations

import random
from fractions import Fraction

import mpmath as mp
import pytest
from tests.reference.divergences import poisson_gaussian, real
from tests.reference.tighter_costs import discrete_gaussian_moments

from dpolicy.privacy.certificates import QUANTA_PER_UNIT, renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.mechanisms.cost_rules import CostRules
from dpolicy.privacy.mechanisms.gaussian import DiscreteGaussian
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

AR = NeighbouringRelation.ADD_REMOVE


def charged(
    sigma: Fraction, squared: int, rate: Fraction, order: Fraction, rules: CostRules
) -> int:
    """Return the cost for a sensitivity whose square is given, rounded up."""
    sensitivity = Fraction(mp.nstr(mp.sqrt(squared) * (1 + mp.mpf("1e-15")), 17))
    mechanism = DiscreteGaussian(sigma, sensitivity, sampling_rate=rate)
    return cost(mechanism, 1, AR, (renyi(order),), rules).amounts[0]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("shift", [(1,), (2,), (1, 1)])
def test_both_directions_are_below_the_cost(seed: int, shift: tuple[int, ...]) -> None:
    rng = random.Random(seed)
    sigma, rate = Fraction(rng.randint(3, 20), 10), Fraction(rng.randint(1, 60), 100)
    order = Fraction(rng.choice(["1.5", "2", "3", "4.5", "6"]))
    with mp.workdps(20):
        moments = discrete_gaussian_moments(real(order), real(rate), real(sigma), shift)
        added, removed = (moment / real(order - 1) * QUANTA_PER_UNIT for moment in moments)
    assert removed <= added * (1 + mp.mpf("1e-12")) + 1
    first, second = (
        charged(sigma, sum(s * s for s in shift), rate, order, rules) for rules in CostRules
    )
    assert added <= second + 1
    assert second <= first


def test_the_sum_without_its_binomial_weights_is_no_bound() -> None:
    """Canary: q²·α/(2σ²), the leading term alone, is below the true loss."""
    with mp.workdps(20):
        added, _ = discrete_gaussian_moments(mp.mpf(4), mp.mpf("0.2"), mp.mpf("0.8"), (1,))
    leading = mp.mpf("0.04") * 4 / (2 * mp.mpf("0.64"))
    assert leading < added / 3


@pytest.mark.parametrize("order", [2, 3, 8, 32])
def test_integer_orders_cost_as_much_as_continuous_noise(order: int) -> None:
    mechanism = DiscreteGaussian(Fraction(1), sampling_rate=Fraction(1, 100), count=1000)
    (second,) = cost(mechanism, 1, AR, (renyi(order),), CostRules.SECOND).amounts
    exact = poisson_gaussian(mp.mpf(1), mp.mpf(1) / 100, order) * 1000 * QUANTA_PER_UNIT
    exact = min(exact, mp.mpf(order) / 2 * 1000 * QUANTA_PER_UNIT)
    assert exact <= second <= exact * (1 + mp.mpf("1e-9")) + 1
