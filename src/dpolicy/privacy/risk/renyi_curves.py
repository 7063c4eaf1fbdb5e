"""Trade-off curves of Rényi DP and zCDP, by the data-processing inequality.

The decision of a test has two outcomes, with probabilities t and a. Its Rényi divergence in both
directions is at most that of the outputs (van Erven, Harremoës 2014, Theorem 9), so the largest t
that satisfies both bounds is a bound on every test (theory/risk, statement 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.certificates import FLOAT_ERROR
from dpolicy.privacy.conversion import log_fraction, pure_to_renyi, pure_to_zcdp
from dpolicy.privacy.risk.tradeoff_curves import SMALLEST_GAP, SMALLEST_RATE, probability_up

_ERROR = float(FLOAT_ERROR)

#: Log-odds of a rate that rounds to 1.
_TOP = 40.0

#: Halvings of an interval of log-odds; the rest of the interval counts against the bound.
_STEPS = 52

#: Exponents of the orders 1 + 10^(n/16) at which zCDP is used: far apart first, because an order
#: that does not lower the bound of an earlier order is rejected by one evaluation.
_EXPONENTS = (*range(-48, 113, 16), *range(-44, 113, 4), *range(-48, 113))

#: Orders at which zCDP is used. Each order alone gives a valid bound.
_ZCDP_ORDERS = tuple(1 + 10 ** (n / 16) for n in dict.fromkeys(_EXPONENTS))


@dataclass(frozen=True, slots=True)
class RenyiCurve:
    """Rényi DP of one order."""

    order: float
    divergence: float

    def true_positive_rate(self, rate: Fraction, limit: Fraction) -> Fraction:
        """Return the largest t whose two divergences from a are within the bound, rounded up."""
        false_log_odds = _log_odds(rate)
        high = _TOP if 1 - limit < SMALLEST_GAP else _log_odds(limit)
        if not self._excludes(high, false_log_odds):
            return limit
        log_odds = _smallest(
            false_log_odds, high, lambda middle: self._excludes(middle, false_log_odds)
        )
        return min(limit, Fraction(math.exp(_log_rates(log_odds)[0]) * (1 + _ERROR)))

    def advantage(self, limit: Fraction) -> Fraction:
        """Return tanh(ε/2) for the largest ε whose randomized response is within the bound."""
        return _advantage(limit, lambda epsilon: pure_to_renyi(epsilon, self.order) > self._limit)

    def excess(self, ratio: Fraction) -> Fraction:
        """Return δ at ε = log ratio (Canonne, Kamath, Steinke 2020, Proposition 12)."""
        return probability_up(self._log_delta(log_fraction(ratio)))

    def false_positive_rate(self, true_rate: Fraction, limit: Fraction) -> Fraction:
        """Return the smallest a from which both divergences of t are within the bound."""
        true_log_odds = _log_odds(true_rate)
        is_tiny = limit < SMALLEST_RATE
        low = self._smallest_log_odds(true_log_odds) if is_tiny else _log_odds(limit)
        if not self._excludes(true_log_odds, low):
            return limit
        log_odds = _largest(low, true_log_odds, lambda odds: self._excludes(true_log_odds, odds))
        return max(limit, Fraction(math.exp(_log_rates(log_odds)[0]) * (1 - _ERROR)))

    @property
    def _limit(self) -> float:
        return self.divergence * (1 + 4 * _ERROR)

    def _smallest_log_odds(self, true_log_odds: float) -> float:
        """Return log-odds of a that order α excludes, since t^α a^(1−α) ≤ e^((α−1)D)."""
        log_rate = _log_rates(true_log_odds)[0] * self.order / (self.order - 1)
        return log_rate - self.divergence - 1

    def _log_delta(self, epsilon: float) -> float:
        terms = (
            (self.order - 1) * (self.divergence - epsilon),
            (self.order - 1) * math.log1p(-1 / self.order),
            -math.log(self.order),
        )
        size = (self.order - 1) * (self.divergence + epsilon) + sum(map(abs, terms))
        return math.fsum(terms) + _ERROR * size

    def _excludes(self, true_log_odds: float, false_log_odds: float) -> bool:
        """Return whether a divergence of the two outcomes certainly exceeds the bound."""
        hit, miss = _log_rates(true_log_odds)
        false_hit, false_miss = _log_rates(false_log_odds)
        moment = max(
            self._log_moment(hit, miss, false_hit, false_miss),
            self._log_moment(false_hit, false_miss, hit, miss),
        )
        size = 1 - (hit + miss + false_hit + false_miss)
        error = _ERROR * size * self.order / (self.order - 1)
        return moment / (self.order - 1) > self._limit + error

    def _log_moment(self, p: float, not_p: float, q: float, not_q: float) -> float:
        """Return log(p^α q^(1−α) + (1−p)^α (1−q)^(1−α)) from logarithms."""
        first = self.order * (p - q) + q
        second = self.order * (not_p - not_q) + not_q
        top, low = max(first, second), min(first, second)
        return top + math.log1p(math.exp(low - top))


@dataclass(frozen=True, slots=True)
class ZcdpCurve:
    """ρ-zCDP: Rényi DP with D = ρα for every order."""

    rho: float

    def true_positive_rate(self, rate: Fraction, limit: Fraction) -> Fraction:
        """Return the smallest bound of all orders of the grid."""
        for curve in self._curves():
            limit = curve.true_positive_rate(rate, limit)
        return limit

    def advantage(self, limit: Fraction) -> Fraction:
        """Return tanh(ε/2) for ε tanh(ε/2) = ρ: order 1 gives the smallest bound."""
        rho = self.rho * (1 + 4 * _ERROR)
        return _advantage(limit, lambda epsilon: pure_to_zcdp(epsilon) > rho)

    def excess(self, ratio: Fraction) -> Fraction:
        """Return the smallest bound of all orders of the grid."""
        return min(curve.excess(ratio) for curve in self._curves())

    def false_positive_rate(self, true_rate: Fraction, limit: Fraction) -> Fraction:
        """Return the largest bound of all orders of the grid."""
        for curve in self._curves():
            limit = curve.false_positive_rate(true_rate, limit)
        return limit

    def _curves(self) -> list[RenyiCurve]:
        return [RenyiCurve(order, self.rho * order) for order in _ZCDP_ORDERS]


def _advantage(limit: Fraction, exceeds: Callable[[float], bool]) -> Fraction:
    """Return tanh(ε/2), rounded up, for the ε above which randomized response exceeds a bound.

    Return `limit` if that is smaller.
    """
    high = 1.0 if 1 - limit < SMALLEST_GAP else 2 * math.atanh(float(limit))
    if 1 - limit < SMALLEST_GAP:
        while not exceeds(high):
            high *= 2
    elif not exceeds(high):
        return limit
    epsilon = _smallest(0.0, high, exceeds)
    return min(Fraction(math.tanh(epsilon / 2) * (1 + _ERROR)), limit)


def _smallest(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """Return a number at which `holds` is true, near the smallest; it is true at `high`."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _largest(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """Return a number at which `holds` is true, near the largest; it is true at `low`."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _log_odds(rate: Fraction) -> float:
    return math.log(float(rate)) - math.log(float(1 - rate))


def _log_rates(log_odds: float) -> tuple[float, float]:
    """Return the logarithms of a rate and of its complement."""
    rest = math.log1p(math.exp(-abs(log_odds)))
    return min(log_odds, 0.0) - rest, min(-log_odds, 0.0) - rest
