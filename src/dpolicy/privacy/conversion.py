"""Bounds of one notion → bounds of another, each by a named theorem (theory 1.2, 1.3).

Every function returns an upper bound: what is left of a floating-point error is added before it
leaves the module, so no caller can forget to. Losses enter exactly, as fractions.

A converted ε of a history that was chosen adaptively is an accounting value, not a guarantee
(theory 2.2): the guarantee of a rule is its budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from dpolicy.privacy.certificates import FLOAT_ERROR, QUANTA_PER_UNIT, Notion, inflate
from dpolicy.privacy.loss import Loss
from dpolicy.privacy.normal_distribution import TAIL_ERROR, log_tail, mills, normal_shift

#: The relative error of a few rounded operations, as a float.
_ERROR = float(FLOAT_ERROR)

#: Decimal digits kept of a δ that is not rational; the rest is rounded up.
_DELTA_DIGITS = 20


def renyi_to_epsilon_classic(order: Fraction, divergence: Fraction, delta: Fraction) -> float:
    """ε = r + log(1/δ)/(α−1) (Mironov 2017, Proposition 3)."""
    return _sum_up(float(divergence), -log_fraction(delta) / float(order - 1))


def renyi_to_epsilon(order: Fraction, divergence: Fraction, delta: Fraction) -> float:
    """ε = r + log(1−1/α) + log(1/(αδ))/(α−1) (Canonne, Kamath, Steinke 2020, Proposition 12)."""
    return max(0.0, _improved(float(order), float(divergence), log_fraction(delta)))


def zcdp_to_epsilon(rho: Fraction, delta: Fraction) -> float:
    """The least ε of `renyi_to_epsilon` at r = ρα over all real orders α > 1."""
    return _zcdp_to_epsilon(float(rho), log_fraction(delta))


def zcdp_to_epsilon_bun_steinke(rho: Fraction, delta: Fraction) -> float:
    """ε = ρ + 2√(ρ log(1/δ)) (Bun, Steinke 2016, Proposition 1.3)."""
    return _sum_up(float(rho), 2 * math.sqrt(float(rho) * -log_fraction(delta)))


def gaussian_log_delta(mu: float, epsilon: float) -> float:
    """log δ of μ-GDP at ε, exact for the Gaussian mechanism (Balle, Wang 2018, Theorem 8).

    δ = Q(a) − e^ε Q(b) with a, b = ε/μ ∓ μ/2, and e^ε φ(b) = φ(a), so δ = φ(a)(R(a) − R(b)).
    """
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if a < 0:
        mass = math.exp(log_tail(a)) * (1 + TAIL_ERROR)
        # −a²/2 = ε − b²/2; the side that does not cancel.
        return math.log(mass - math.exp(_log_density(a)) * mills(b) * (1 - 4 * TAIL_ERROR))
    gap = mills(a) * (1 + TAIL_ERROR) - mills(b) * (1 - TAIL_ERROR)
    return _log_density(a) * (1 - _ERROR) + math.log(gap)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ of μ-GDP at ε; 0 only if it is smaller than any float."""
    return min(1.0, math.exp(gaussian_log_delta(mu, epsilon)) * (1 + _ERROR))


@lru_cache(maxsize=4096)
def gaussian_to_epsilon(mu: float, delta: Fraction) -> float:
    """The least ε at which μ-GDP has at most δ: the inverse of `gaussian_delta`, from above."""
    target = log_fraction(delta)
    if not mu or gaussian_log_delta(mu, 0.0) <= target:
        return 0.0
    if not delta:
        return math.inf
    low, high = 0.0, max(1.0, mu)
    while gaussian_log_delta(mu, high) > target:
        low, high = high, 2 * high
    _, above = _narrowed(low, high, lambda epsilon: gaussian_log_delta(mu, epsilon) <= target)
    return above * (1 + _ERROR)


@lru_cache(maxsize=4096)
def mu_within(epsilon: Fraction, delta: Fraction) -> float:
    """The largest μ for which μ-GDP is (ε, δ)-DP, rounded down: Δ/σ of a calibrated Gaussian."""
    if not delta:
        return 0.0
    e, target = float(epsilon), log_fraction(delta)
    low, high = 0.0, 1e-9
    while gaussian_log_delta(high, e) <= target:
        low, high = high, 2 * high
    below, _ = _narrowed(low, high, lambda mu: gaussian_log_delta(mu, e) > target)
    return below * (1 - _ERROR)


def _narrowed(low: float, high: float, holds: Callable[[float], bool]) -> tuple[float, float]:
    """Neighbouring floats such that `holds` is false at the lower and true at the upper one."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


def pure_to_renyi(epsilon: float, order: float) -> float:
    """RR_ε(α), the divergence of randomized response: tight for ε-DP (Steinke 2024, Theorem 4).

    (α−1)·RR = log(cosh((α−½)ε)/cosh(ε/2)), and cosh A − cosh B = 2 sinh((A+B)/2) sinh((A−B)/2)
    leaves only positive terms. Not inflated: a mechanism's curve is rounded once, later.
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
    """ρ = ε tanh(ε/2), tight (Steinke 2024, Theorem 5). Not inflated."""
    return epsilon * math.tanh(epsilon / 2)


def pure_to_mu_squared(epsilon: float) -> float:
    """μ² with μ = 2Φ⁻¹(e^ε/(1+e^ε)), tight (theory 1.2). Not inflated."""
    shift = normal_shift(epsilon)
    return 4 * shift * shift


def implied_delta(epsilon: Fraction, delta: Fraction, at: Fraction) -> Fraction:
    """The δ at another ε of everything that is (ε, δ)-DP (Kairouz, Oh, Viswanath 2015)."""
    if at >= epsilon:
        return delta
    # (e^ε − e^ε')/(1 + e^ε), free of overflow.
    gain = -math.expm1(-float(epsilon - at)) / (1 + math.exp(-float(epsilon)))
    return delta + (1 - delta) * min(inflate(gain), Fraction(1))


def group_delta(epsilon: Fraction | float, delta: Fraction, k: int) -> Fraction | None:
    """δ(e^{kε}−1)/(e^ε−1), the δ-side of a group of k (theory 4.1); None if it reaches 1."""
    if k == 1 or not delta:
        return delta
    e = float(epsilon)
    factor = math.log(k) if e == 0 else k * e - e + _log_ratio(k * e, e)
    logarithm = log_fraction(delta) + factor
    logarithm += (abs(log_fraction(delta)) + k * e + 1) * _ERROR
    return None if logarithm >= 0 else fraction_up(logarithm)


def epsilon_at(loss: Loss, delta: Fraction) -> float:
    """The least ε that any one certificate of a loss gives at δ, rounded up, for people to read.

    What the δ-side takes of δ is gone; if it takes all, only the pure certificate is left.
    """
    rest = delta - loss.delta
    if rest < 0:
        return math.inf
    best = math.inf
    for certificate, quanta in zip(loss.certificates, loss, strict=True):
        if quanta is None or (not rest and certificate.notion is not Notion.PURE):
            continue
        spent = Fraction(quanta, QUANTA_PER_UNIT)
        match certificate.notion:
            case Notion.PURE:
                epsilon = float_up(spent)
            case Notion.RENYI:
                epsilon = renyi_to_epsilon(certificate.order, spent, rest)
            case Notion.RHO:
                epsilon = zcdp_to_epsilon(spent, rest)
            case Notion.MU:
                epsilon = gaussian_to_epsilon(math.sqrt(spent) * (1 + _ERROR), rest)
        best = min(best, epsilon)
    return best


def float_up(value: Fraction) -> float:
    """The nearest float that is not below."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def log_fraction(value: Fraction) -> float:
    """log of a positive fraction that may be smaller than any float; −∞ for zero."""
    if not value:
        return -math.inf
    return math.log(value.numerator) - math.log(value.denominator)


def fraction_up(logarithm: float) -> Fraction:
    """exp of a negative number as a decimal fraction that is not below, however small it is."""
    digits = math.floor(logarithm / math.log(10)) * -1
    scaled = math.exp(logarithm + digits * math.log(10))
    error = (abs(logarithm) + 1) * 8 * _ERROR
    unit = 10 ** (digits + _DELTA_DIGITS)
    return Fraction(math.ceil(Fraction(scaled * (1 + error)) * 10**_DELTA_DIGITS), unit)


def _improved(order: float, divergence: float, log_delta: float) -> float:
    mass = -(math.log(order) + log_delta) / (order - 1)
    return _sum_up(divergence, math.log1p(-1 / order), mass)


@lru_cache(maxsize=4096)
def _zcdp_to_epsilon(rho: float, log_delta: float) -> float:
    """Any order gives a valid ε: the search need not be exact, only the evaluation sound."""
    if not rho:
        return 0.0
    low, high = math.log(1e-3), math.log(1e9)  # of α − 1; the function is unimodal
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(80):
        width = ratio * (high - low)
        left = _improved(1 + math.exp(high - width), rho * (1 + math.exp(high - width)), log_delta)
        right = _improved(1 + math.exp(low + width), rho * (1 + math.exp(low + width)), log_delta)
        low, high = (low, low + width) if left < right else (high - width, high)
    order = 1 + math.exp((low + high) / 2)
    return max(0.0, _improved(order, rho * order, log_delta))


def _log_ratio(large: float, small: float) -> float:
    """log((1 − e^−large)/(1 − e^−small))."""
    return math.log(-math.expm1(-large)) - math.log(-math.expm1(-small))


def _log_density(x: float) -> float:
    return -x * x / 2 - 0.5 * math.log(2 * math.pi)


def _sum_up(*terms: float) -> float:
    """The sum, raised by what rounding may have taken from its terms."""
    return math.fsum(terms) + _ERROR * sum(map(abs, terms))
