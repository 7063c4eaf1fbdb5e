"""Exact limit of composition: privacy loss distributions on a grid, composed by FFT.

The limit is what a fixed list of mechanisms satisfies. No adaptive filter can pass it, so
`capacity.py` states capacities as shares of it. A loss between two points of the grid is split
between them such that the masses of both worlds stay the same: δ then is an upper bound, and exact
for one run at the points of the grid. The numbers are floats without an error bound: they serve
benchmarks only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Distance of two losses of the grid, and number of losses: from −52 to 52.
STEP = 2e-4
COUNT = 2**19

Floats = NDArray[np.float64]
_LOSSES: Floats = np.asarray((np.arange(COUNT) - COUNT // 2) * STEP, np.float64)
_ERFC = np.vectorize(math.erfc, otypes=[np.float64])


@dataclass(frozen=True, slots=True)
class LossGrid:
    """Distribution of the loss of one mechanism, as its Fourier transform, for both directions.

    `finite` is the probability of a finite loss.
    """

    transforms: tuple[NDArray[np.complex128], ...]
    finite: tuple[float, ...]

    def repeated(self, count: int) -> LossGrid:
        """Return the distribution of `count` runs."""
        return compose([(self, count)])


def compose(parts: Sequence[tuple[LossGrid, int]]) -> LossGrid:
    """Return the distribution of several mechanisms, each with its number of runs."""
    transforms, finite = [], []
    for side in (0, 1):
        product = np.ones(COUNT // 2 + 1, np.complex128)
        probability = 1.0
        for grid, count in parts:
            product = product * grid.transforms[side] ** count
            probability *= grid.finite[side] ** count
        transforms.append(product)
        finite.append(probability)
    return LossGrid(tuple(transforms), tuple(finite))


def delta(grid: LossGrid, epsilon: float) -> float:
    """Return δ(ε), the larger of both directions."""
    above = epsilon < _LOSSES
    gains = -np.expm1(epsilon - _LOSSES[above])
    sides = []
    for transform, finite in zip(grid.transforms, grid.finite, strict=True):
        masses = np.fft.fftshift(np.fft.irfft(transform, COUNT))
        sides.append(1 - finite + float(masses[above] @ gains))
    return max(sides)


def largest_count(is_within: Callable[[int], bool], start: int = 8) -> int:
    """Return the largest count that is within a limit; the limit is monotone."""
    low, high = 0, start
    while is_within(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_within(middle) else (low, middle)
    return low


def pure_grid(epsilon: float) -> LossGrid:
    """Return the grid of randomized response, the worst mechanism of a pure ε."""
    likely = 1 / (1 + math.exp(-epsilon))
    masses = _split_points(np.array([epsilon, -epsilon]), np.array([likely, 1 - likely]))
    return _grid(masses, masses)


def discrete_gaussian_grid(sigma: float) -> LossGrid:
    """Return the grid of integer noise on a value that changes by 1."""
    outputs = np.arange(-20 * math.ceil(sigma), 20 * math.ceil(sigma) + 1)
    weights = np.exp(-((outputs / sigma) ** 2) / 2)
    losses = (1 - 2 * outputs) / (2 * sigma**2)
    masses = _split_points(losses, weights / weights.sum())
    return _grid(masses, masses)


def laplace_grid(scale: float) -> LossGrid:
    """Return the grid of Laplace noise on a value that changes by 1.

    The loss of the output z is 1/b from 1 on, −1/b up to 0, and (2z − 1)/b between: P is centred at
    1 and Q at 0.
    """
    edges = np.clip((scale * _LOSSES + 1) / 2, 0, 1)
    present = _laplace_masses(edges - 1, scale)
    masses = _split_bins(present, _laplace_masses(edges, scale))
    # Outside of [0, 1] the loss is constant, with P(z > 1) = 1/2 and P(z < 0) = e^(−1/b)/2.
    masses += _split_points(
        np.array([1 / scale, -1 / scale]), np.array([0.5, math.exp(-1 / scale) / 2])
    )
    return _grid(masses, masses)


def sampled_gaussian_grid(sigma: float, rate: float = 1.0) -> LossGrid:
    """Return the grid of a Gaussian on a Poisson sample: both directions of add-remove.

    With the unit, the output has the law (1−q)·N(0, σ²) + q·N(1, σ²); without it, N(0, σ²). The
    loss grows with the output z, so bins of losses are intervals of z.
    """
    growth = np.expm1(_LOSSES) + rate
    with np.errstate(divide="ignore", invalid="ignore"):
        edges = np.where(growth > 0, 0.5 + sigma**2 * np.log(growth / rate), -np.inf)
    absent, shifted = _normal_masses(edges / sigma), _normal_masses((edges - 1) / sigma)
    present = (1 - rate) * absent + rate * shifted
    # In the other direction the loss is −l, so the bins are in reverse. The grid has one more point
    # below 0 than above: the bin of the lowest losses has no mirror image, and no mass.
    mirrored = _split_bins(_mirror(absent), _mirror(present))
    return _grid(_split_bins(present, absent), mirrored)


def _mirror(masses: Floats) -> Floats:
    return np.concatenate([[0.0], masses[:0:-1]])


def _normal_masses(edges: Floats) -> Floats:
    """Return the mass of N(0, 1) between neighbouring edges, without cancellation in the tails."""
    above, below = _ERFC(edges / math.sqrt(2)) / 2, _ERFC(-edges / math.sqrt(2)) / 2
    masses = np.where(edges[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])
    return np.asarray(masses, np.float64)


def _laplace_masses(edges: Floats, scale: float) -> Floats:
    """Return the mass of Laplace noise between neighbouring edges that have one sign."""
    tail = np.exp(-np.abs(edges) / scale) / 2
    return np.asarray(np.abs(np.diff(tail)), np.float64)


def _split_bins(present: Floats, absent: Floats) -> Floats:
    """Return masses at the points of the grid from the masses of both worlds in its bins.

    The part `low` at the lower end l solves low + high = P and low·e^−l + high·e^−(l+h) = Q.
    """
    lower = _LOSSES[:-1]
    with np.errstate(over="ignore", invalid="ignore"):
        low = (absent * np.exp(lower) - present * math.exp(-STEP)) / -math.expm1(-STEP)
    low = np.clip(low, 0, present)
    masses = np.zeros(COUNT)
    masses[:-1] += low
    masses[1:] += present - low
    return masses


def _split_points(losses: Floats, probabilities: Floats) -> Floats:
    """Return masses at the points of the grid for single losses."""
    # A loss that is a point of the grid but for rounding stays there.
    places = np.round(losses / STEP, 6) + COUNT // 2
    index = np.floor(places).astype(np.int64)
    above = (places - index) * STEP
    low = probabilities * (np.exp(-above) - math.exp(-STEP)) / -math.expm1(-STEP)
    masses = np.zeros(COUNT)
    np.add.at(masses, index, low)
    np.add.at(masses, index + 1, probabilities - low)
    return masses


def _grid(removed: Floats, added: Floats) -> LossGrid:
    sides = (removed,) if added is removed else (removed, added)
    transforms = [np.fft.rfft(np.fft.ifftshift(masses)) for masses in sides]
    finite = [min(1.0, float(masses.sum())) for masses in sides]
    return LossGrid((transforms[0], transforms[-1]), (finite[0], finite[-1]))
