"""Conversions that only tests need: textbook bounds, and inverses of the conversions of dpolicy.

Every function returns an upper bound unless its docstring states otherwise.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dpolicy.privacy.certificates import FLOAT_ERROR, QUANTA_PER_UNIT, Notion, inflate
from dpolicy.privacy.conversion import (
    gaussian_log_delta,
    gaussian_to_epsilon,
    log_fraction,
    renyi_to_epsilon,
    zcdp_to_epsilon,
)
from dpolicy.privacy.loss import Loss
from dpolicy.privacy.reserves.ladder import LEAK_RATE

_ERROR = float(FLOAT_ERROR)


def renyi_to_epsilon_classic(order: Fraction, divergence: Fraction, delta: Fraction) -> float:
    """Return ε = r + log(1/δ)/(α−1) (Mironov 2017, Proposition 3)."""
    return _sum_up(float(divergence), -log_fraction(delta) / float(order - 1))


def zcdp_to_epsilon_bun_steinke(rho: Fraction, delta: Fraction) -> float:
    """Return ε = ρ + 2√(ρ log(1/δ)) (Bun, Steinke 2016, Proposition 1.3)."""
    return _sum_up(float(rho), 2 * math.sqrt(float(rho) * -log_fraction(delta)))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return δ of μ-GDP at ε; 0 only if δ is smaller than any float."""
    return min(1.0, math.exp(gaussian_log_delta(mu, epsilon)) * (1 + _ERROR))


def mu_within(epsilon: Fraction, delta: Fraction) -> float:
    """Return the largest μ for which μ-GDP is (ε, δ)-DP, rounded down: Δ/σ of a Gaussian."""
    if not delta:
        return 0.0
    e, target = float(epsilon), log_fraction(delta)
    low, high = 0.0, 1e-9
    while gaussian_log_delta(high, e) <= target:
        low, high = high, 2 * high
    middle = (low + high) / 2
    while low < middle < high:
        if gaussian_log_delta(middle, e) > target:
            high = middle
        else:
            low = middle
        middle = (low + high) / 2
    return low * (1 - _ERROR)


def implied_delta(epsilon: Fraction, delta: Fraction, other_epsilon: Fraction) -> Fraction:
    """Return the δ of (ε, δ)-DP at `other_epsilon` (Kairouz, Oh, Viswanath 2015)."""
    if other_epsilon >= epsilon:
        return delta
    # (e^ε − e^ε')/(1 + e^ε), free of overflow.
    gain = -math.expm1(-float(epsilon - other_epsilon)) / (1 + math.exp(-float(epsilon)))
    return delta + (1 - delta) * min(inflate(gain), Fraction(1))


def epsilon_at(loss: Loss, delta: Fraction) -> float:
    """Return the smallest ε that any certificate of a loss gives at δ.

    The δ-side reduces δ. If nothing of δ remains, only the pure certificate gives an ε.
    """
    remaining = delta - loss.delta
    if remaining < 0:
        return math.inf
    best = math.inf
    for certificate, quanta in zip(loss.certificates, loss, strict=True):
        if quanta is None or (not remaining and certificate.notion is not Notion.PURE):
            continue
        spent = Fraction(quanta, QUANTA_PER_UNIT)
        match certificate.notion:
            case Notion.PURE:
                epsilon = float_up(spent)
            case Notion.RENYI:
                epsilon = renyi_to_epsilon(certificate.order, spent, remaining)
            case Notion.RHO:
                epsilon = zcdp_to_epsilon(spent, remaining)
            case Notion.MU:
                epsilon = gaussian_to_epsilon(math.sqrt(spent) * (1 + _ERROR), remaining)
            case Notion.RESERVE:  # the cost includes a small leak of τ per unit
                total = spent + certificate.order
                smaller = remaining - inflate(LEAK_RATE) * spent
                if smaller <= 0:
                    continue
                epsilon = gaussian_to_epsilon(math.sqrt(total) * (1 + _ERROR), smaller)
        best = min(best, epsilon)
    return best


def float_up(value: Fraction) -> float:
    """Return the smallest float that is not below `value`."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def _sum_up(*terms: float) -> float:
    """Return the sum, raised by the largest possible rounding error of its terms."""
    return math.fsum(terms) + _ERROR * sum(map(abs, terms))
