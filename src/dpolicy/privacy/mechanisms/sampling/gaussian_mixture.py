"""Moments of sampled Gaussians at any order, by a trapezoidal rule with a proven error.

With c = Δ/σ, r(t) = e^{ct − c²/2} and t standard normal, a unit that is added to a Poisson sample
has the moment E[(1−q+q·r(t))^α], and a unit that changes has E[(1−q+q·r(t))^α (1−q+q·r(−t))^{1−α}]
(theory 3.6). Both integrands are analytic in a strip around the real line, where they grow by a
known factor, so the error of the rule has a closed form (docs/theory/tighter-costs.md, statements
1 and 3). The linear terms have mean 0. They are subtracted, so that all summands are positive and a
moment near 1 keeps its digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

#: Largest rate. Nearer to 1 the logarithm of 1 − q + q·r loses digits, and sampling gains little.
MAX_RATE = 0.9

#: Largest number of summands. A finer rule returns no bound.
MAX_SUMMANDS = 6_000

#: The rule is off by at most 2·e^−66 of the moment and of each linear term.
_STRIP = 66.0
_STRIP_ERROR = 2.0 * math.exp(-65.5)

#: Exceeds the relative error of a part of a summand, divided by its condition number.
_PART_ERROR = 2.0**-46

#: The sum ends where the remaining summands are below this share of it.
_TAIL = 2.0**-60

_ROOT_2PI = math.sqrt(2 * math.pi)


class _Summand(NamedTuple):
    """Value of one summand without the width of a step, and an upper bound of its error."""

    value: float
    error: float


@lru_cache(maxsize=8_192)
def mixture_moment(order: float, rate: float, ratio: float, is_changed: bool) -> float:
    """Return an upper bound of (α−1)·D_α for one unit, with `ratio` = Δ/σ.

    The unit is in one of two databases, or in both with different data if `is_changed`. Return inf
    if the sum needs more than `MAX_SUMMANDS` summands or overflows.
    """
    power = order - 1 if is_changed else 0.0
    step = _step(ratio, power)
    reach = ((order + power) * ratio + 40) / step
    if rate > MAX_RATE or reach > MAX_SUMMANDS:
        return math.inf
    integrand = _Integrand(order, power, rate, ratio)
    try:
        right = _sum_right(integrand, step)
        left = _sum_left(integrand, step)
    except OverflowError:
        return math.inf
    total = (right + left) * step / _ROOT_2PI
    total += _STRIP_ERROR * (2 + total + 4 * order)
    return math.log1p(total) * (1 + 2.0**-50)


def _step(ratio: float, power: float) -> float:
    """Return the largest step whose error is proven to be small enough, over widths of the strip.

    A strip of half-width y multiplies the integral by at most e^{y²/2}·cos(cy/2)^−power, and the
    rule is off by 2/(e^{2πy/step} − 1) times that. It is analytic for cy < π.
    """
    widest = min(3.0 / ratio, 12.0)
    widths = [widest * n / 24 for n in range(1, 25)]
    return max(
        2 * math.pi * y / (_STRIP + y * y / 2 - power * math.log(math.cos(ratio * y / 2)))
        for y in widths
    )


class _Integrand:
    """e^{−t²/2}·(h − 1 − αu + βw) with h = (1+u)^α (1+w)^{−β}: at least 0, as h is convex."""

    __slots__ = ("order", "power", "rate", "ratio")

    def __init__(self, order: float, power: float, rate: float, ratio: float) -> None:
        self.order, self.power, self.rate, self.ratio = order, power, rate, ratio

    def __call__(self, t: float) -> _Summand:
        order, power, ratio, rate = self.order, self.power, self.ratio, self.rate
        u = rate * math.expm1(ratio * t - ratio * ratio / 2)
        log_u = math.log1p(u)
        w = rate * math.expm1(-ratio * t - ratio * ratio / 2) if power else 0.0
        log_w = math.log1p(w)
        exponent = order * log_u - power * log_w
        logs = order * abs(log_u) + power * abs(log_w)
        scale = _PART_ERROR * (2 * ratio * abs(t) + ratio * ratio + t * t + 4)
        if exponent > 30:  # here t > 0, so u > 0 > w and h alone is an upper bound
            value = math.exp(exponent - t * t / 2)
            return _Summand(value, value * (logs + 1) * scale)
        density = math.exp(-t * t / 2)
        rise = _exponential_gap(exponent)
        fall, gain = order * _logarithm_gap(u), power * _logarithm_gap(w)
        parts = rise + fall + gain + abs(math.expm1(exponent)) * logs
        return _Summand(density * (rise - fall + gain), density * parts * scale)

    def right_tail(self, t: float) -> tuple[float, float]:
        """Return (b, d): the summands at t + x, x ≥ 0, are at most b·e^{−dx} if d > 0.

        log h has the derivative αc·(share of r(t)) + βc·(share of r(−t)), and the second share
        falls.
        """
        mirrored = self.rate * math.exp(-self.ratio * t - self.ratio**2 / 2)
        share = mirrored / (1 - self.rate + mirrored)
        decay = t - self.order * self.ratio - self.power * self.ratio * share
        u = self.rate * math.expm1(self.ratio * t - self.ratio**2 / 2)
        w = mirrored - self.rate
        exponent = self.order * math.log1p(u) - self.power * math.log1p(w)
        return math.exp(exponent - t * t / 2) * (1 + 2.0**-30), decay

    def left_tail(self, t: float) -> tuple[float, float]:
        """Return (b, d): the summands at −t − x, x ≥ 0, are at most b·e^{−dx} if d > 0.

        For t ≥ c the value of h is at most 1, so a summand is at most 1 + αq + βw.
        """
        grown = math.exp(self.ratio * t - t * t / 2)
        most = (1 + self.order * self.rate) * math.exp(-t * t / 2)
        return (most + self.power * self.rate * grown) * (1 + 2.0**-30), t - self.ratio


def _sum_right(integrand: _Integrand, step: float) -> float:
    """Return an upper bound of the summands at 0, step, 2·step, …"""
    total = 0.0
    for n in _numbers():
        t = n * step
        value, error = integrand(t)
        total += value + error
        if t > integrand.order * integrand.ratio:
            bound, decay = integrand.right_tail(t)
            if decay > 0 and bound <= _TAIL * total * -math.expm1(-decay * step):
                break
    return total * (1 + _TAIL) * (1 + MAX_SUMMANDS * 2.0**-52)


def _sum_left(integrand: _Integrand, step: float) -> float:
    """Return an upper bound of the summands at −step, −2·step, …"""
    total = 0.0
    for n in _numbers():
        t = (n + 1) * step
        value, error = integrand(-t)
        total += value + error
        if t > integrand.ratio:
            bound, decay = integrand.left_tail(t)
            if bound <= _TAIL * total * -math.expm1(-decay * step):
                break
    return total * (1 + _TAIL) * (1 + MAX_SUMMANDS * 2.0**-52)


def _numbers() -> Iterator[int]:
    """Yield 0, 1, …; raise `OverflowError` after twice `MAX_SUMMANDS`."""
    yield from range(2 * MAX_SUMMANDS)
    raise OverflowError


def _exponential_gap(x: float) -> float:
    """Return e^x − 1 − x without cancellation near 0."""
    if abs(x) > 0.1:
        return math.expm1(x) - x
    tail = 1 + x / 7 * (1 + x / 8 * (1 + x / 9 * (1 + x / 10)))
    return x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * tail))))


def _logarithm_gap(u: float) -> float:
    """Return u − log(1 + u) without cancellation near 0."""
    if abs(u) > 0.05:
        return u - math.log1p(u)
    z = u / (2 + u)
    square = z * z
    series = square * (1 / 3 + square * (1 / 5 + square * (1 / 7 + square * (1 / 9 + square / 11))))
    return u * z - 2 * z * series
