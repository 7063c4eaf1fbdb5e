"""Laplace noise → its Rényi curve; discrete Laplace → that of randomized response (theory 3.3).

With e = kΔ/b, (α−1)·rdp = log(w·e^{(α−1)e} + (1−w)·e^{−αe}), w = α/(2α−1). In several dimensions
the worst case is all of the L1 sensitivity in one coordinate. ρ is the proven e·tanh(e/2), not the
KL divergence. The discrete curve is RR_e for a step of one; for longer steps it is smaller, but not
provably so in several dimensions, so RR_e is charged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.mechanisms.bounds import Bounds, pure


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


def laplace(m: Laplace, k: int) -> Bounds:
    """Pure kΔ/b, with the curve of the Laplace distribution."""
    epsilon = k * m.sensitivity / m.scale
    e = float(epsilon)
    return pure(epsilon, curve=lambda order: laplace_divergence(e, order))


def discrete_laplace(m: DiscreteLaplace, k: int) -> Bounds:
    """Pure kΔ/b and what follows from it."""
    return pure(k * m.sensitivity / m.scale)


def laplace_divergence(e: float, order: float) -> float:
    """The Rényi divergence between Laplace distributions that are e scales apart."""
    weight = order / (2 * order - 1)
    if (order - 1) * e < 1:
        # The terms of first order cancel exactly; what is left is positive.
        excess = weight * _excess((order - 1) * e) + (1 - weight) * _excess(-order * e)
        moment = math.log1p(excess)
    else:
        tail = (order - 1) / order * math.exp(-(2 * order - 1) * e)
        moment = (order - 1) * e + math.log(weight) + math.log1p(tail)
    return min(e, moment / (order - 1))


def _excess(x: float) -> float:
    """e^x − 1 − x without cancellation near zero."""
    if abs(x) > 0.1:
        return math.expm1(x) - x
    tail = 1 + x / 7 * (1 + x / 8 * (1 + x / 9 * (1 + x / 10)))
    return x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * tail))))
