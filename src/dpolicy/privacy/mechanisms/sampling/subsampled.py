"""Poisson sampling: the curve of a mechanism on a Poisson sample (theory 3.6, 3.7).

At integer orders (α−1)·rdp(α) = log(1 + S) with
S = Σ_{l≥2} C(α,l)(1−q)^{α−l}q^l (e^{(l−1)e(l)} − 1), and F times the exponentials for l ≥ 3: the
binomial weights sum to 1, so no term cancels. F = 1 for Gaussian and Laplace (Mironov, Talwar,
Zhang 2019; Zhu, Wang 2019), 3 in general (Zhu, Wang 2019, Theorem 5). Between integers (α−1)·rdp is
convex; above `MAX_ORDER` the unsampled curve is used. The bound holds for add-remove only. dpolicy
cannot check that whole units are sampled independently and that the sample stays secret.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import repeat
from operator import sub

#: Largest integer order at which the sum is computed (theory 9).
MAX_ORDER = 256

#: log n! for n ≤ MAX_ORDER.
_LOG_FACTORIAL = tuple(math.log(math.factorial(n)) for n in range(MAX_ORDER + 1))


class SampledMoments:
    """Log-moments of one sampled mechanism, cached by integer order."""

    __slots__ = ("_moments", "_rate", "_size", "_terms", "base")

    def __init__(self, base: Callable[[float], float], rate: float, factor: int) -> None:
        self.base = base
        self._rate = rate
        self._moments: dict[int, float] = {}
        self._terms, self._size = _log_terms(base, rate, factor)
        if factor > 1:
            self._make_monotone()

    def __call__(self, order: float) -> float:
        """Return an upper bound of the divergence at any order."""
        unsampled = self.base(order)
        if order > MAX_ORDER:
            return unsampled
        low = max(2, math.floor(order))
        moment = self.moment(low)
        if order <= 2:
            return min(unsampled, moment)
        part = order - low
        if part:
            moment = (1 - part) * moment + part * self.moment(low + 1)
        return min(unsampled, moment / (order - 1))

    def moment(self, order: int) -> float:
        """Return (α−1)·rdp(α) at an integer order from 2 to `MAX_ORDER`."""
        moment = self._moments.get(order)
        if moment is None:
            moment = self._moments[order] = self._compute_moment(order)
        return moment

    def _make_monotone(self) -> None:
        """Make the general bound monotone: the true curve is, so a larger order bounds a smaller.

        The general bound falls where F has the most weight. A falling curve would make small groups
        cost more than large groups.
        """
        smallest = math.inf
        for order in range(MAX_ORDER, 1, -1):
            smallest = min(smallest, self._compute_moment(order) / (order - 1))
            self._moments[order] = smallest * (order - 1)

    def _compute_moment(self, order: int) -> float:
        # Term l is terms[l] − log (α−l)! + log α! + α log(1−q).
        shared = _LOG_FACTORIAL[order] + order * math.log1p(-self._rate)
        logs = list(map(sub, self._terms[: order - 1], _LOG_FACTORIAL[order - 2 :: -1]))
        top = max(logs)
        if top == math.inf:
            return math.inf
        shift = top if abs(top) > 600 else 0.0  # only if exponentials overflow or underflow
        total = sum(map(math.exp, map(sub, logs, repeat(shift)) if shift else logs))
        # Summands of size M cause an error of about M·2⁻⁵¹ in the logarithm of every term.
        size = self._size[order] + abs(shared) + 4
        log_sum = shared + shift + math.log(total) + size * 2.0**-47
        return max(log_sum, 0.0) + math.log1p(math.exp(-abs(log_sum)))


def _log_terms(
    base: Callable[[float], float], rate: float, factor: int
) -> tuple[list[float], list[float]]:
    """Return log((e^x − 1)·(q/(1−q))^n / n!) for n = 2…, and the largest summand up to each n."""
    odds = math.log(rate) - math.log1p(-rate)
    terms: list[float] = []
    size = [0.0, 0.0]
    for n in range(2, MAX_ORDER + 1):
        x = (n - 1) * base(n)
        terms.append(_log_gain(x, factor if n > 2 else 1) + n * odds - _LOG_FACTORIAL[n])
        finite = x if x < math.inf else 0.0
        size.append(max(size[-1], finite + n * abs(odds) + _LOG_FACTORIAL[-1]))
    return terms, size


def _log_gain(x: float, factor: int) -> float:
    """Return log(F·e^x − 1)."""
    if factor == 1:
        return x + math.log1p(-math.exp(-x)) if x > 1 else math.log(math.expm1(x))
    return x + math.log(factor - math.exp(-x))


def epsilon_on_sample(epsilon: float, rate: float) -> float:
    """Return log(1 + q(e^ε − 1)): the pure ε on a Poisson sample."""
    if epsilon < 700:  # e^ε does not overflow
        return math.log1p(rate * math.expm1(epsilon))
    return epsilon + math.log(rate + (1 - rate) * math.exp(-epsilon))
