"""Tails of the normal distribution, accurate to a few ulp at any distance from the mean.

All functions use Mills' ratio R(x) = Q(x)/φ(x), which neither underflows nor overflows for x ≥ 0.
It is computed from `erfc` near zero and from its continued fraction elsewhere. The Gaussian
conversions use these functions (theory 1.2).
"""

from __future__ import annotations

import math

#: Upper bound of the relative error of `mills`, and of `log_tail` where |log Q| ≥ 1. Where
#: |log Q| < 1 it bounds the absolute error of `log_tail`.
TAIL_ERROR = 2.0**-46

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_NEAR = 3.0


def mills(x: float) -> float:
    """Return R(x) = Q(x)/φ(x) for x ≥ 0."""
    if x < _NEAR:
        return math.sqrt(math.pi / 2) * math.exp(x * x / 2) * math.erfc(x / math.sqrt(2))
    ratio = x
    for n in range(64 if x < 5 else 24, 0, -1):  # all terms positive: no cancellation
        ratio = x + n / ratio
    return 1 / ratio


def log_tail(x: float) -> float:
    """Return log Q(x) = log P(Z > x)."""
    if x < _NEAR:
        return math.log(math.erfc(x / math.sqrt(2)) / 2)
    return -x * x / 2 - _HALF_LOG_2PI + math.log(mills(x))


def normal_shift(epsilon: float) -> float:
    """Return x with Q(x) = 1/(1 + e^ε): half of the μ for which ε-DP is μ-GDP."""
    if epsilon < 2:
        return central_quantile(math.tanh(epsilon / 2))
    return tail_quantile(epsilon + math.log1p(math.exp(-epsilon)))


def tail_quantile(target: float) -> float:
    """Return x with log Q(x) = −target, for a target above 1."""
    x = math.sqrt(2 * target) * (1 - 0.5 * math.log(target + 1) / target) or 1.0
    for _ in range(30):
        step = (log_tail(x) + target) * mills(x)  # Newton's method on a concave function
        x += step
        if abs(step) <= 1e-15 * x:
            break
    return x


def central_quantile(mass: float) -> float:
    """Return x with P(|Z| < x) = mass, for a mass that is not near 1."""
    x = mass * math.sqrt(math.pi / 2)
    x *= 1 + x * x / 6
    for _ in range(30):
        density = math.sqrt(2 / math.pi) * math.exp(-x * x / 2)
        gap = (mass - math.erf(x / math.sqrt(2))) / density
        step = gap / (1 - x * gap / 2)  # Halley's method: the second derivative is known
        x += step
        if abs(step) <= 1e-15 * x:
            break
    return x
