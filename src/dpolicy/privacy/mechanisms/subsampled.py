"""The curve of a mechanism → its curve on a Poisson sample (theory 3.6, 3.7).

At integer orders (α−1)·rdp(α) = log(1 + S) with
S = Σ_{l≥2} C(α,l)(1−q)^{α−l}q^l (e^{(l−1)e(l)} − 1), and F times the exponentials for l ≥ 3: the
binomial weights sum to 1, so no term cancels. F = 1 for Gaussian and Laplace (Mironov, Talwar,
Zhang 2019; Zhu, Wang 2019), 3 in general (Zhu, Wang 2019, Theorem 5). Between integers (α−1)·rdp is
convex; above `MAX_ORDER` the unsampled curve stands. Add-remove only. Not checked: that whole units
are sampled independently and that the sample stays secret.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import repeat
from operator import sub

#: Integer orders up to here are summed exactly (theory 9).
MAX_ORDER = 256

#: log n! for n ≤ MAX_ORDER.
_LOG_FACTORIAL = tuple(math.log(math.factorial(n)) for n in range(MAX_ORDER + 1))


class SampledMoments:
    """Log-moments of one sampled mechanism, computed at an integer order when first asked for."""

    __slots__ = ("_known", "_rate", "_size", "_terms", "base")

    def __init__(self, base: Callable[[float], float], rate: float, factor: int) -> None:
        self.base = base
        self._rate = rate
        self._known: dict[int, float] = {}
        self._terms, self._size = _scaled_terms(base, rate, factor)
        if factor > 1:
            self._flatten()

    def __call__(self, order: float) -> float:
        """An upper bound of the divergence at any order."""
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
        """(α−1)·rdp(α) at an integer order from 2 to `MAX_ORDER`."""
        found = self._known.get(order)
        if found is None:
            found = self._known[order] = self._moment(order)
        return found

    def _flatten(self) -> None:
        """Make the general bound monotone, as the true curve is: a larger order bounds a smaller.

        It falls where F weighs most, and a falling curve would make small groups dearer than large.
        """
        least = math.inf
        for order in range(MAX_ORDER, 1, -1):
            least = min(least, self._moment(order) / (order - 1))
            self._known[order] = least * (order - 1)

    def _moment(self, order: int) -> float:
        # Term l is terms[l] − log (α−l)! + log α! + α log(1−q).
        shared = _LOG_FACTORIAL[order] + order * math.log1p(-self._rate)
        logs = list(map(sub, self._terms[: order - 1], _LOG_FACTORIAL[order - 2 :: -1]))
        top = max(logs)
        if top == math.inf:
            return math.inf
        shift = top if abs(top) > 600 else 0.0  # only where exponentials leave the floats
        total = sum(map(math.exp, map(sub, logs, repeat(shift)) if shift else logs))
        # Summands of size M leave an error of some M·2⁻⁵¹ in the logarithm of every term.
        size = self._size[order] + abs(shared) + 4
        log_sum = shared + shift + math.log(total) + size * 2.0**-47
        return max(log_sum, 0.0) + math.log1p(math.exp(-abs(log_sum)))


def _scaled_terms(
    base: Callable[[float], float], rate: float, factor: int
) -> tuple[list[float], list[float]]:
    """Per n = 2…: log((e^x − 1)·(q/(1−q))^n / n!), and the largest summand up to each order."""
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
    """log(F·e^x − 1)."""
    if factor == 1:
        return x + math.log1p(-math.exp(-x)) if x > 1 else math.log(math.expm1(x))
    return x + math.log(factor - math.exp(-x))


def sampled_epsilon(epsilon: float, rate: float) -> float:
    """log(1 + q(e^ε − 1)): the pure ε on a Poisson sample."""
    if epsilon < 700:  # where e^ε is a float
        return math.log1p(rate * math.expm1(epsilon))
    return epsilon + math.log(rate + (1 - rate) * math.exp(-epsilon))
