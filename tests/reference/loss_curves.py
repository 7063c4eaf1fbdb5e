"""δ(ε) of composed mechanisms, by other methods than those of `privacy/loss_distribution`.

With M(s) = E e^(s·loss) under the first distribution, δ(ε) is the inverse Laplace transform of
M(s)/(s(s+1)): ∫ e^(sε)(1 − e^(ε−l))₊ dε = e^(sl)/(s(s+1)) for Re s > 0. The moments of independent
mechanisms multiply, so no distribution is discretised and none is composed. Sums over all outcomes
and closed forms with 50 digits serve where a loss has atoms only.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product as outcomes

import mpmath as mp
import numpy as np
from numpy.typing import NDArray

Complex = NDArray[np.complex128]

#: log M(s) of one draw.
LogMoment = Callable[[Complex], Complex]


def inverse_transform(log_moment: LogMoment, epsilon: float, span: float, points: int) -> float:
    """Return δ(ε) by the trapezoid rule on the line Re s = λ, at the saddle point λ."""
    tilts = 2.0 ** (np.arange(-40, 57) / 8)
    exponents = log_moment(np.asarray(tilts, np.complex128)).real - tilts * epsilon
    exponents -= np.log(tilts * (1 + tilts))
    tilt = float(tilts[np.argmin(exponents)])
    t = np.linspace(0, span, points)
    s: Complex = np.asarray(tilt + 1j * t, np.complex128)
    values = np.exp(log_moment(s) - s * epsilon) / (s * (s + 1))
    values[[0, -1]] *= 0.5
    return float(values.real.sum() * (t[1] - t[0]) / np.pi)


def gaussian_moment(mu: float) -> LogMoment:
    """Return log M of N(0, 1) against N(μ, 1)."""
    return lambda s: s * (s + 1) * mu * mu / 2


def laplace_moment(e: float) -> LogMoment:
    """Return log M of Laplace noise moved by ε: two atoms and an exponential between them."""

    def moment(s: Complex) -> Complex:
        ends = np.exp(s * e) / 2 + np.exp(-(s + 1) * e) / 2
        between = (np.exp(s * e) - np.exp(-(s + 1) * e)) / (2 * (2 * s + 1))
        return np.log(ends + between)

    return moment


def atoms_moment(losses: NDArray[np.float64], masses: NDArray[np.float64]) -> LogMoment:
    """Return log M of a loss with few values."""

    logarithms = np.log(masses)

    def moment(s: Complex) -> Complex:
        top = (np.outer(s.real, losses) + logarithms).max(axis=1)
        total = np.zeros(len(s), np.complex128)
        for loss, logarithm in zip(losses.tolist(), logarithms.tolist(), strict=True):
            total += np.exp(s * loss + logarithm - top)
        return np.asarray(np.log(total) + top, np.complex128)

    return moment


def sampled_gaussian_moment(sigma: float, rate: float, *, removes: bool) -> LogMoment:
    """Return log M of a Gaussian on a Poisson sample, by the trapezoid rule over its output.

    The rule is exact to rounding for a smooth integrand that vanishes at both ends.
    """
    z = np.linspace(-14 * sigma, 14 * sigma + 1, 1501)
    without = np.exp(-z * z / (2 * sigma**2)) / (sigma * np.sqrt(2 * np.pi))
    ratio = 1 - rate + rate * np.exp((2 * z - 1) / (2 * sigma**2))
    density = without * ratio if removes else without
    losses = np.log(ratio) if removes else -np.log(ratio)
    masses = density * (z[1] - z[0])
    return atoms_moment(losses, masses)


def discrete_gaussian_moment(sigma: float) -> LogMoment:
    """Return log M of the discrete Gaussian moved by 1."""
    x = np.arange(-int(15 * sigma) - 1, int(15 * sigma) + 2, dtype=float)
    weights = np.exp(-x * x / (2 * sigma**2))
    return atoms_moment((1 - 2 * x) / (2 * sigma**2), weights / weights.sum())


def gaussian_delta(mu: mp.mpf, epsilon: mp.mpf) -> mp.mpf:
    """Return δ of N(0, 1) against N(μ, 1) at any real ε."""
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def response_delta(
    epsilons: list[tuple[mp.mpf, int]], epsilon: mp.mpf, rest: Callable[[mp.mpf], mp.mpf]
) -> mp.mpf:
    """Return δ of randomized responses (ε, count), composed with a mechanism of δ curve `rest`."""
    total = mp.mpf(0)
    for kept in outcomes(*(range(count + 1) for _, count in epsilons)):
        mass, loss = mp.mpf(1), mp.mpf(0)
        for (e, count), number in zip(epsilons, kept, strict=True):
            mass *= mp.binomial(count, number) / (1 + mp.exp(-e)) ** count
            mass *= mp.exp(-e * (count - number))
            loss += e * (2 * number - count)
        total += mass * rest(epsilon - loss)
    return total


def no_mechanism(epsilon: mp.mpf) -> mp.mpf:
    """Return δ of no mechanism: (1 − e^ε)₊."""
    return max(1 - mp.exp(epsilon), mp.mpf(0))


def sampled_gaussian_delta(
    sigma: mp.mpf, rate: mp.mpf, epsilon: mp.mpf, *, removes: bool
) -> mp.mpf:
    """Return δ of one Gaussian step on a Poisson sample, in closed form."""
    growth = mp.exp(epsilon)
    if removes:
        inner = (growth - 1 + rate) / rate
        if inner <= 0:
            return 1 - growth
        return rate * gaussian_delta(1 / sigma, mp.log(inner))
    inner = 1 - growth * (1 - rate)
    if inner <= 0:
        return mp.mpf(0)
    return inner * gaussian_delta(1 / sigma, mp.log(rate * growth / inner))
