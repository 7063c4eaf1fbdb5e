"""Randomized response → exact bounds, over two values or k (theory 3.2).

Two values are RR_ε itself, the worst of all ε-DP mechanisms. k values with noise ν have the curve
log(hi^α lo^{1−α} + lo^α hi^{1−α} + (k−2)·lo)/(α−1). A group is charged as a pure mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.mechanisms.divergence_bounds import DivergenceBounds, pure_dp_bounds


@dataclass(frozen=True, slots=True)
class RandomizedResponse:
    """The true one of two answers with probability `truth`."""

    truth: Fraction
    count: int = 1
    sampling_rate: Fraction | None = None


@dataclass(frozen=True, slots=True)
class KaryResponse:
    """The true one of `values` answers kept with 1 − `noise`, else any of them alike."""

    values: int
    noise: Fraction
    count: int = 1
    sampling_rate: Fraction | None = None


def randomized_response(m: RandomizedResponse, k: int) -> DivergenceBounds:
    """Pure k·log(p/(1−p))."""
    return pure_dp_bounds(k * math.log1p(float((2 * m.truth - 1) / (1 - m.truth))))


def kary_response(m: KaryResponse, k: int) -> DivergenceBounds:
    """Pure k·log(hi/lo); for one unit, the exact curve."""
    low = m.noise / m.values
    epsilon = math.log1p(float((1 - m.noise) / low))
    if k > 1:
        return pure_dp_bounds(k * epsilon)
    least = float(low)
    return pure_dp_bounds(epsilon, curve=lambda order: _kary_divergence(epsilon, least, order))


def _kary_divergence(epsilon: float, low: float, order: float) -> float:
    """With r = hi/lo: the sum over answers is 1 + lo·(r^α − 1)(1 − r^{1−α}), all terms positive."""
    kept = -math.expm1(-(order - 1) * epsilon)
    if order * epsilon < 30:
        moment = math.log1p(low * math.expm1(order * epsilon) * kept)
    else:
        # log(1 + g) with g = lo·r^α·(1 − r^−α)·kept, in logarithms.
        gain = math.log(low) + order * epsilon + math.log(kept)
        gain += math.log1p(-math.exp(-order * epsilon))
        moment = max(gain, 0.0) + math.log1p(math.exp(-abs(gain)))
    return min(epsilon, moment / (order - 1))
