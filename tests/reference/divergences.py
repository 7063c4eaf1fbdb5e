"""Rényi divergences and conversions as the papers print them, evaluated with 50 digits.

This naive twin of the curves uses neither stable forms nor rounding, only high precision.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath as mp

mp.mp.dps = 50

Real = Any  # mpmath's numbers have no types


def real(value: Fraction | float) -> Real:
    """Return an exact number with 50 digits."""
    n, d = value.as_integer_ratio()
    return mp.mpf(n) / mp.mpf(d)


def response(e: Real, a: Real) -> Real:
    """Return RR_ε(α) of randomized response (theory 3.2)."""
    return e - mp.log((1 + mp.exp(-e)) / (1 + mp.exp(-(2 * a - 1) * e))) / (a - 1)


def kary(values: int, noise: Real, a: Real) -> Real:
    """Return the divergence of randomized response over k values (theory 3.2)."""
    lo, hi = noise / values, 1 - noise + noise / values
    total = hi**a * lo ** (1 - a) + lo**a * hi ** (1 - a) + (values - 2) * lo
    return mp.log(total) / (a - 1)


def laplace(e: Real, a: Real) -> Real:
    """Return the divergence of Laplace distributions `e` scales apart (theory 3.3)."""
    tail = (a - 1) / (2 * a - 1) * mp.exp(-(2 * a - 1) * e)
    return e + mp.log(a / (2 * a - 1) + tail) / (a - 1)


def discrete_laplace(step: Real, shift: int, a: Real) -> Real:
    """Return the divergence of two-sided geometric distributions `shift` apart (theory 3.3)."""
    x = mp.exp(-step)
    middle = x ** ((1 - a) * shift) * x ** (2 * a - 1)
    middle *= (1 - x ** ((2 * a - 1) * (shift - 1))) / (1 - x ** (2 * a - 1))
    ends = (x ** ((1 - a) * shift) + x ** (a * shift)) / (1 - x)
    return mp.log((1 - x) / (1 + x) * (ends + middle)) / (a - 1)


def poisson(curve: Callable[[int], Real], q: Real, a: int, factor: int = 1) -> Real:
    """Return the curve on a Poisson sample at an integer order (theory 3.7)."""
    total = (1 - q) ** (a - 1) * (1 + (a - 1) * q)
    for n in range(2, a + 1):
        term = mp.binomial(a, n) * (1 - q) ** (a - n) * q**n * mp.exp((n - 1) * curve(n))
        total += term if n == 2 else factor * term
    return mp.log(total) / (a - 1)


def poisson_gaussian(s: Real, q: Real, a: int) -> Real:
    """Return the divergence of one DP-SGD step (theory 3.6)."""
    return poisson(lambda n: n / (2 * s * s), q, a)


def mixture_group(s: Real, q: Real, k: int, a: Real) -> Real:
    """Return the divergence of k sampled units from none by quadrature (theory 3.6, Ganesh 2024).

    It is exact up to the error of the quadrature.
    """
    weights = [mp.binomial(k, j) * q**j * (1 - q) ** (k - j) for j in range(k + 1)]

    def density(x: Real) -> Real:
        return sum(w * mp.npdf(x, j, s) for j, w in enumerate(weights))

    def moment(top: Callable[[Real], Real], bottom: Callable[[Real], Real]) -> Real:
        ends = [-12 * s - k, -2 * s, 0, k, 2 * s + k, 12 * s + 4 * k * a]
        return mp.quad(lambda x: top(x) ** a * bottom(x) ** (1 - a), ends)

    plain = lambda x: mp.npdf(x, 0, s)  # noqa: E731
    return mp.log(max(moment(density, plain), moment(plain, density))) / (a - 1)


def chain(curve: Callable[[Real], Real], k: int, a: Real) -> Real:
    """Return the chain bound for a group of k (theory 4.2)."""
    return sum(k * a / (k * a - j) * curve(k * a - j) for j in range(k))


def gaussian_delta(mu: Real, e: Real) -> Real:
    """Return δ(ε) of a Gaussian (theory 1.2)."""
    return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)


def pure_mu(e: Real) -> Real:
    """Return the μ of ε-DP (theory 1.2)."""
    mass = (mp.exp(e) - 1) / (mp.exp(e) + 1)
    return 2 * mp.sqrt(2) * mp.erfinv(mass)
