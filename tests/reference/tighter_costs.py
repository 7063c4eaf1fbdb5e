"""Tighter costs by their definitions: quadrature with many digits, enumeration, and search.

These naive twins use no theorem about the worst case: they evaluate one pair of databases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import product

import mpmath as mp
import numpy as np
from tests.reference.divergences import Real


def mixture_moment(order: Real, rate: Real, ratio: Real, is_changed: bool) -> Real:
    """Return log E[(P/Q)^α] for a sampled Gaussian, by quadrature (theory 3.6)."""
    power = order - 1 if is_changed else mp.mpf(0)

    def density(t: Real) -> Real:
        up = 1 - rate + rate * mp.exp(ratio * t - ratio**2 / 2)
        down = 1 - rate + rate * mp.exp(-ratio * t - ratio**2 / 2)
        return mp.npdf(t) * up**order * down ** (-power)

    high = (order + power) * ratio + 14
    ends = [-14 - 2 * ratio, *mp.linspace(-9, high, 24)]
    return mp.log(mp.quad(density, ends))


def pair_moment(
    order: float,
    rate: float,
    first: tuple[float, float],
    second: tuple[float, float],
    size: int = 1,
) -> float:
    """Return log E[(P/Q)^α] where `size` units, each sampled, move the mean by a vector each.

    P and Q are mixtures of normal distributions in the plane, summed on a grid in floats.
    """
    axis = np.arange(-14, 14 + order * 2 * size, 0.1)
    x, y = np.meshgrid(axis, np.arange(-14, 14, 0.1), indexing="ij")
    # The first vector lies on the first axis, so that the mass lies inside the grid.
    top, bottom = _mixture(x, y, rate, first, size), _mixture(x, y, rate, second, size)
    logs = order * np.log(top) - (order - 1) * np.log(bottom) - (x**2 + y**2) / 2
    return float(np.log(np.sum(np.exp(logs)) * 0.01 / (2 * np.pi)))


def _mixture(
    x: np.ndarray, y: np.ndarray, rate: float, shift: tuple[float, float], size: int
) -> np.ndarray:
    """Return the density of the mixture divided by that of the normal distribution."""
    a, b = shift
    one = a * x + b * y
    square = a * a + b * b
    return sum(
        float(mp.binomial(size, j))
        * rate**j
        * (1 - rate) ** (size - j)
        * np.exp(j * one - j * j * square / 2)
        for j in range(size + 1)
    )  # type: ignore[return-value]


def laplace_trade_off(e: Real, level: Real) -> Real:
    """Return the smallest type II error of a test of the level between Laplace noise e apart."""
    if level < mp.exp(-e) / 2:
        return 1 - mp.exp(e) * level
    if level <= mp.mpf(1) / 2:
        return mp.exp(-e) / (4 * level)
    return mp.exp(-e) * (1 - level)


def normal_trade_off(mu: Real, level: Real) -> Real:
    """Return the smallest type II error of a test of the level between N(0, 1) and N(μ, 1)."""
    quantile = mp.sqrt(2) * mp.erfinv(1 - 2 * level)
    return mp.ncdf(quantile - mu)


def tree_squares(steps: int, chosen: Iterable[int]) -> int:
    """Return Σ (chosen steps below a node)² over the complete nodes of a tree."""
    squares = 0
    for level in range(steps.bit_length()):
        counts = Counter(step >> level for step in chosen)
        squares += sum(n * n for node, n in counts.items() if (node + 1) << level <= steps)
    return squares


def answers_moment(lie: Real, values: int, order: Real, changed: Iterable[tuple[int, int]]) -> Real:
    """Return log E[(P/Q)^α] of independent answers by enumeration of all their vectors.

    `changed` has the true answer of each unit in both databases. `lie` is the probability of each
    answer but the true one.
    """
    pairs = list(changed)
    total = mp.mpf(0)
    for answers in product(range(values), repeat=len(pairs)):
        top = bottom = mp.mpf(1)
        for answer, (first, second) in zip(answers, pairs, strict=True):
            top *= 1 - (values - 1) * lie if answer == first else lie
            bottom *= 1 - (values - 1) * lie if answer == second else lie
        total += top**order * bottom ** (1 - order)
    return mp.log(total)


def discrete_gaussian_moments(
    order: Real, rate: Real, sigma: Real, shift: tuple[int, ...]
) -> tuple[Real, Real]:
    """Return log E[(P/Q)^α] of an added and of a removed unit, by sums over the integers.

    The noise is a discrete Gaussian in each coordinate, and the unit moves the mean by `shift`.
    """
    reach = int(mp.ceil(11 * sigma)) + int(order * max(shift)) + 2
    axes = [range(-reach, reach + 1)] * len(shift)
    weights = {
        x: mp.exp(-(mp.mpf(x) ** 2) / (2 * sigma**2)) for x in range(-reach - max(shift), reach + 1)
    }
    total = sum(
        mp.exp(-(mp.mpf(x) ** 2) / (2 * sigma**2)) for x in range(-4 * reach, 4 * reach + 1)
    )
    added = removed = mp.mpf(0)
    for point in product(*axes):
        plain = moved = mp.mpf(1)
        for x, s in zip(point, shift, strict=True):
            plain *= weights[x] / total
            moved *= weights[x - s] / total
        mixed = (1 - rate) * plain + rate * moved
        added += mixed**order * plain ** (1 - order)
        removed += plain**order * mixed ** (1 - order)
    return mp.log(added), mp.log(removed)
