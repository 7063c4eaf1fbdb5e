"""Conversions of bounds between notions, each by a cited theorem (theory 1.2, 1.3).

A conversion to ε returns an upper bound: it adds the largest possible floating-point error itself.
Functions marked "not inflated" leave that to the caller. Losses enter as exact fractions.

A converted ε of an adaptively chosen history is an accounting value, not a guarantee (theory 2.2):
the guarantee of a rule is its budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from dpolicy.privacy.certificates import FLOAT_ERROR
from dpolicy.privacy.normal_distribution import TAIL_ERROR, log_tail, mills, normal_shift

#: The relative error of a few rounded operations, as a float.
_ERROR = float(FLOAT_ERROR)

#: Decimal digits kept of an irrational δ; the remaining digits are rounded up.
_DELTA_DIGITS = 20


def renyi_to_epsilon(order: Fraction, divergence: Fraction, delta: Fraction) -> float:
    """Return ε = r + log(1−1/α) + log(1/(αδ))/(α−1), at least 0.

    Canonne, Kamath, Steinke 2020, Proposition 12.
    """
    return max(0.0, _epsilon_at_order(float(order), float(divergence), log_fraction(delta)))


def zcdp_to_epsilon(rho: Fraction, delta: Fraction) -> float:
    """Return the smallest ε of `renyi_to_epsilon` at r = ρα over all real orders α > 1."""
    return _zcdp_to_epsilon(float(rho), log_fraction(delta))


def gaussian_log_delta(mu: float, epsilon: float) -> float:
    """Return log δ of μ-GDP at ε, exact for the Gaussian mechanism (Balle, Wang 2018, Theorem 8).

    δ = Q(a) − e^ε Q(b) with a, b = ε/μ ∓ μ/2, and e^ε φ(b) = φ(a), so δ = φ(a)(R(a) − R(b)).
    """
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if a < 0:
        mass = math.exp(log_tail(a)) * (1 + TAIL_ERROR)
        # −a²/2 = ε − b²/2; the side that does not cancel.
        return math.log(mass - math.exp(_log_density(a)) * mills(b) * (1 - 4 * TAIL_ERROR))
    gap = mills(a) * (1 + TAIL_ERROR) - mills(b) * (1 - TAIL_ERROR)
    return _log_density(a) * (1 - _ERROR) + math.log(gap)


@lru_cache(maxsize=4096)
def gaussian_to_epsilon(mu: float, delta: Fraction) -> float:
    """Return the smallest ε at which μ-GDP has at most δ: `gaussian_log_delta` inverted."""
    target = log_fraction(delta)
    if not mu or gaussian_log_delta(mu, 0.0) <= target:
        return 0.0
    if not delta:
        return math.inf
    low, high = 0.0, max(1.0, mu)
    while gaussian_log_delta(mu, high) > target:
        low, high = high, 2 * high
    smallest = _bisect(low, high, lambda epsilon: gaussian_log_delta(mu, epsilon) <= target)
    return smallest * (1 + _ERROR)


def _bisect(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """Return a float at which `holds` is true and false at the float below.

    `holds` must be false at `low` and true at `high`.
    """
    middle = (low + high) / 2
    while low < middle < high:
        if holds(middle):
            high = middle
        else:
            low = middle
        middle = (low + high) / 2
    return high


def pure_to_renyi(epsilon: float, order: float) -> float:
    """Return RR_ε(α), the divergence of randomized response: tight for ε-DP. Not inflated.

    Steinke 2024, Theorem 4. (α−1)·RR = log(cosh((α−½)ε)/cosh(ε/2)), and
    cosh A − cosh B = 2 sinh((A+B)/2) sinh((A−B)/2) leaves only positive terms.
    """
    above = (order - 0.5) * epsilon
    if above < 30:
        gain = math.sinh(order * epsilon / 2) * math.sinh((order - 1) * epsilon / 2)
        moment = math.log1p(2 * gain / math.cosh(epsilon / 2))
    else:
        moment = (order - 1) * epsilon - math.log1p(math.exp(-epsilon))
        moment += math.log1p(math.exp(-2 * above))
    return min(epsilon, moment / (order - 1), order * epsilon * math.tanh(epsilon / 2))


def pure_to_zcdp(epsilon: float) -> float:
    """Return ρ = ε tanh(ε/2), tight (Steinke 2024, Theorem 5). Not inflated."""
    return epsilon * math.tanh(epsilon / 2)


def pure_to_mu_squared(epsilon: float) -> float:
    """Return μ² with μ = 2Φ⁻¹(e^ε/(1+e^ε)), tight (theory 1.2). Not inflated."""
    shift = normal_shift(epsilon)
    return 4 * shift * shift


def group_delta(epsilon: Fraction | float, delta: Fraction, k: int) -> Fraction | None:
    """Return δ(e^{kε}−1)/(e^ε−1), the δ-side of a group of k (theory 4.1); None if it reaches 1."""
    if k == 1 or not delta:
        return delta
    e = float(epsilon)
    factor = math.log(k) if e == 0 else k * e - e + _log_ratio(k * e, e)
    logarithm = log_fraction(delta) + factor
    logarithm += (abs(log_fraction(delta)) + k * e + 1) * _ERROR
    return None if logarithm >= 0 else fraction_up(logarithm)


def log_fraction(value: Fraction) -> float:
    """Return the logarithm of a positive fraction that may be below any float; −∞ for zero."""
    if not value:
        return -math.inf
    return math.log(value.numerator) - math.log(value.denominator)


def fraction_up(logarithm: float) -> Fraction:
    """Return exp of a negative number as a decimal fraction, rounded up, however small it is."""
    digits = math.floor(logarithm / math.log(10)) * -1
    scaled = math.exp(logarithm + digits * math.log(10))
    error = (abs(logarithm) + 1) * 8 * _ERROR
    unit = 10 ** (digits + _DELTA_DIGITS)
    return Fraction(math.ceil(Fraction(scaled * (1 + error)) * 10**_DELTA_DIGITS), unit)


def _epsilon_at_order(order: float, divergence: float, log_delta: float) -> float:
    mass = -(math.log(order) + log_delta) / (order - 1)
    return _sum_up(divergence, math.log1p(-1 / order), mass)


@lru_cache(maxsize=4096)
def _zcdp_to_epsilon(rho: float, log_delta: float) -> float:
    """Minimise over the order. Any order gives a valid ε, so the search need not be exact."""
    if not rho:
        return 0.0
    low, high = math.log(1e-3), math.log(1e9)  # of α − 1; the function is unimodal
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(80):
        width = ratio * (high - low)
        left = _zcdp_epsilon_at(1 + math.exp(high - width), rho, log_delta)
        right = _zcdp_epsilon_at(1 + math.exp(low + width), rho, log_delta)
        low, high = (low, low + width) if left < right else (high - width, high)
    return max(0.0, _zcdp_epsilon_at(1 + math.exp((low + high) / 2), rho, log_delta))


def _zcdp_epsilon_at(order: float, rho: float, log_delta: float) -> float:
    return _epsilon_at_order(order, rho * order, log_delta)


def _log_ratio(large: float, small: float) -> float:
    """Return log((1 − e^−large)/(1 − e^−small))."""
    return math.log(-math.expm1(-large)) - math.log(-math.expm1(-small))


def _log_density(x: float) -> float:
    return -x * x / 2 - 0.5 * math.log(2 * math.pi)


def _sum_up(*terms: float) -> float:
    """Return the sum, raised by the largest possible rounding error of its terms."""
    return math.fsum(terms) + _ERROR * sum(map(abs, terms))
