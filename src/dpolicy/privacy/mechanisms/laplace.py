"""Laplace noise, continuous or discrete → its exact Rényi curve (theory 3.3).

With e = kΔ/b, (α−1)·rdp = log(w·e^{(α−1)e} + (1−w)·e^{−αe}), w = α/(2α−1). The discrete curve has
the same form in the shift s = kΔ: P·e^{(α−1)s/b} + Q·e^{−αs/b} with P + Q = 1. The logarithm of a
sum of exponentials is convex in the shift and 0 at 0, hence super-additive: in several dimensions
the worst case is all of the L1 sensitivity in one coordinate, for both. ρ is the proven
e·tanh(e/2), not the KL divergence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.mechanisms.divergence_bounds import DivergenceBounds, pure_dp_bounds


@dataclass(frozen=True, slots=True)
class Laplace:
    """Laplace noise of scale `scale`; the sensitivity is in L1."""

    scale: Fraction
    sensitivity: Fraction = Fraction(1)
    count: int = 1
    sampling_rate: Fraction | None = None


@dataclass(frozen=True, slots=True)
class DiscreteLaplace:
    """Two-sided geometric noise, P(x) ∝ exp(−|x|/scale), added to integers."""

    scale: Fraction
    sensitivity: Fraction = Fraction(1)
    count: int = 1
    sampling_rate: Fraction | None = None


def laplace(m: Laplace, k: int) -> DivergenceBounds:
    """Pure kΔ/b, with the curve of the Laplace distribution."""
    epsilon = k * m.sensitivity / m.scale
    e = float(epsilon)
    return pure_dp_bounds(epsilon, curve=lambda order: laplace_divergence(e, order))


def discrete_laplace(m: DiscreteLaplace, k: int) -> DivergenceBounds:
    """Pure kΔ/b, with the curve of the discrete distribution."""
    step, shift = float(1 / m.scale), float(k * m.sensitivity)
    epsilon = k * m.sensitivity / m.scale
    if shift < 1:  # no shift of an integer; what follows from ε alone will do
        return pure_dp_bounds(epsilon)
    return pure_dp_bounds(
        epsilon, curve=lambda order: discrete_laplace_divergence(step, shift, order)
    )


def laplace_divergence(e: float, order: float) -> float:
    """The Rényi divergence between Laplace distributions that are e scales apart."""
    weight, other = order / (2 * order - 1), (order - 1) / (2 * order - 1)
    if (order - 1) * e < 1:
        # The terms of first order cancel exactly; what is left is positive.
        excess = weight * _excess((order - 1) * e) + other * _excess(-order * e)
        moment = math.log1p(excess)
    else:
        tail = (order - 1) / order * math.exp(-(2 * order - 1) * e)
        moment = (order - 1) * e + math.log(weight) + math.log1p(tail)
    return min(e, moment / (order - 1))


def discrete_laplace_divergence(step: float, shift: float, order: float) -> float:
    """The Rényi divergence for P(x) ∝ exp(−step·|x|) moved by `shift` ≥ 1."""
    up, down = (order - 1) * step, order * step
    spread = -math.expm1(-(2 * order - 1) * step)
    x = math.exp(-step)
    p = (1 - math.expm1(-step) * (1 - spread) / spread) / (1 + x)
    if shift * up >= 1 or down > 600:
        q = -x * math.expm1(-2 * up) / (1 + x) / spread
        moment = shift * up + math.log(p) + math.log1p(q / p * math.exp(-shift * (up + down)))
    else:
        # The sum is 1 + g·V + P·(e^up − 1)(U − V) with U, V the geometric sums of the shift and g
        # its value at a shift of one, that of randomized response. All terms are positive.
        one = 2 * math.sinh(down / 2) * math.sinh(up / 2) / math.cosh(step / 2)
        grown = _excess(shift * up) - shift * _excess(up)
        shrunk = _excess(-shift * down) - shift * _excess(-down)
        v = math.expm1(-shift * down) / math.expm1(-down)
        gap = grown - math.expm1(up) * shrunk / math.expm1(-down)
        moment = math.log1p(one * v + p * gap)
    return min(shift * step, moment / (order - 1))


def _excess(x: float) -> float:
    """e^x − 1 − x without cancellation near zero."""
    if abs(x) > 0.1:
        return math.expm1(x) - x
    tail = 1 + x / 7 * (1 + x / 8 * (1 + x / 9 * (1 + x / 10)))
    return x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * tail))))
