"""Trade-off curves of pure and Gaussian DP: bounds on every test between neighbouring data sets.

A test has a false-positive rate a and a true-positive rate t. A curve bounds t by a, in both
directions of the pair (theory/risk, statement 1). All results are rounded up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from statistics import NormalDist
from typing import Protocol

from dpolicy.privacy.certificates import FLOAT_ERROR
from dpolicy.privacy.conversion import fraction_up, gaussian_log_delta, log_fraction
from dpolicy.privacy.normal_distribution import TAIL_ERROR, log_tail

#: Largest ε that `exp_up` accepts; a larger loss bounds nothing that a float can express.
MAX_EXPONENT = 10_000

#: Smallest probability that a curve reads as it is, and smallest distance to 1.
SMALLEST_RATE, SMALLEST_GAP = Fraction("1e-300"), Fraction("1e-9")

_ERROR = float(FLOAT_ERROR)
_DIGITS = Context(prec=40)


class TradeoffCurve(Protocol):
    """Bound on all tests between two neighbouring data sets, from one notion."""

    def true_positive_rate(self, rate: Fraction, limit: Fraction) -> Fraction:
        """Return the bound at a false-positive rate in (0, 1), or `limit` if that is smaller."""
        ...

    def advantage(self, limit: Fraction) -> Fraction:
        """Return the bound on t − a, or `limit` if that is smaller."""
        ...

    def excess(self, ratio: Fraction) -> Fraction:
        """Return the bound on t − ratio · a, for a ratio of at least 1."""
        ...

    def false_positive_rate(self, true_rate: Fraction, limit: Fraction) -> Fraction:
        """Return the smallest a of tests with this t, rounded down, or `limit` if it is larger."""
        ...


@dataclass(frozen=True, slots=True)
class PureCurve:
    """ε-DP: t ≤ e^ε a and 1 − t ≥ e^−ε (1 − a) (Wasserman, Zhou 2010; Kairouz et al. 2015)."""

    epsilon: Fraction

    def true_positive_rate(self, rate: Fraction, limit: Fraction) -> Fraction:
        """Return the smaller of both lines, which grow with e^ε."""
        growth = exp_up(self.epsilon)
        return min(limit, growth * rate, 1 - (1 - rate) / growth)

    def advantage(self, limit: Fraction) -> Fraction:
        """Return tanh(ε/2), that of randomized response."""
        return min(limit, self.excess(Fraction(1)))

    def excess(self, ratio: Fraction) -> Fraction:
        """Return (e^ε − ratio)/(e^ε + 1), that of randomized response."""
        growth = exp_up(self.epsilon)
        return max((growth - ratio) / (growth + 1), Fraction(0))

    def false_positive_rate(self, true_rate: Fraction, limit: Fraction) -> Fraction:
        """Return t/e^ε, which is the smallest a while t is below the corner of both lines."""
        return max(limit, true_rate / exp_up(self.epsilon))


@dataclass(frozen=True, slots=True)
class GaussianCurve:
    """μ-GDP: t ≤ Φ(Φ⁻¹(a) + μ) (Dong, Roth, Su 2022)."""

    mu: float

    def true_positive_rate(self, rate: Fraction, limit: Fraction) -> Fraction:
        """Return Q(x − μ) for an x with Q(x) ≥ a."""
        return min(limit, _tail_up(_quantile_down(float(rate)) - self.mu))

    def advantage(self, limit: Fraction) -> Fraction:
        """Return 2Φ(μ/2) − 1."""
        return min(limit, Fraction(math.erf(self.mu / math.sqrt(8)) * (1 + _ERROR)))

    def excess(self, ratio: Fraction) -> Fraction:
        """Return δ at ε = log ratio, by the exact curve of the Gaussian mechanism."""
        logarithm = gaussian_log_delta(self.mu, log_fraction(ratio) * (1 - _ERROR))
        return probability_up(logarithm)

    def false_positive_rate(self, true_rate: Fraction, limit: Fraction) -> Fraction:
        """Return Q(x + μ) for an x with Q(x) ≤ t."""
        return max(limit, _tail_down(_quantile_up(float(true_rate)) + self.mu))


def exp_up(exponent: Fraction) -> Fraction:
    """Return e^x, rounded up; exactly 1 for x = 0."""
    if not exponent:
        return Fraction(1)
    decimal = _DIGITS.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(_DIGITS.exp(decimal)) * (1 + Fraction(1, 10**30))


def probability_up(logarithm: float) -> Fraction:
    """Return the probability with this logarithm, rounded up; at least `SMALLEST_RATE`."""
    smallest = log_fraction(SMALLEST_RATE)
    return Fraction(1) if logarithm >= 0 else fraction_up(max(logarithm, smallest))


def _tail_up(x: float) -> Fraction:
    """Return Q(x), rounded up."""
    logarithm = log_tail(x)
    raised = logarithm + 2 * TAIL_ERROR * max(1.0, -logarithm)
    return Fraction(1) if raised >= 0 else Fraction(math.exp(raised) * (1 + _ERROR))


def _tail_down(x: float) -> Fraction:
    """Return Q(x), rounded down."""
    logarithm = log_tail(x)
    lowered = logarithm - 2 * TAIL_ERROR * max(1.0, -logarithm)
    return Fraction(math.exp(lowered) * (1 - _ERROR))


def _quantile_down(mass: float) -> float:
    """Return an x with Q(x) ≥ mass, near the largest."""
    x, step = -NormalDist().inv_cdf(mass), 2.0**-44
    while log_tail(x) - 2 * TAIL_ERROR * max(1.0, -log_tail(x)) < math.log(mass):
        x, step = x - step * max(1.0, abs(x)), 2 * step
    return x


def _quantile_up(mass: float) -> float:
    """Return an x with Q(x) ≤ mass, near the smallest."""
    x, step = -NormalDist().inv_cdf(mass), 2.0**-44
    while log_tail(x) + 2 * TAIL_ERROR * max(1.0, -log_tail(x)) > math.log(mass):
        x, step = x + step * max(1.0, abs(x)), 2 * step
    return x
