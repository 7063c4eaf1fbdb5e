"""Loss atoms: an upper bound of the loss distribution of a pair, with finitely many losses.

A pair with a continuous loss is cut into cells. The mass of a cell moves to the two ends of the
cell such that the masses of P and of Q stay: δ(ε) is convex in e^(−loss), so it only grows
(docs/theory/exact.md, statement 2). Masses are rounded up, and mass is moved to larger losses where
a number is not exact. A mass of more than 1 in all is therefore possible, and sound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpolicy.privacy.loss_distribution.loss_pairs import (
    DiscreteGaussianPair,
    GaussianPair,
    GeometricPair,
    KaryPair,
    LaplacePair,
    LossPair,
)

FloatVector = NDArray[np.float64]

#: Number of cells of a continuous loss, and largest number of atoms of a discrete one.
CELLS = 2**13
MAX_ATOMS = 2**15

#: Standard deviations of a Gaussian on each side; the mass above them counts as an infinite loss.
RADIUS = 12.0

#: Largest μ of a Gaussian pair, and largest ε of the others: beyond, exponentials overflow.
MAX_MU, MAX_EPSILON = 16, 300

#: Upper bound of the relative error of a mass, and of a tail of a normal distribution: a rounded
#: argument y changes the tail by y² roundoffs, and y is at most `RADIUS` + `MAX_MU`.
MASS_ERROR = 2.0**-42


@dataclass(frozen=True, slots=True, eq=False)
class LossAtoms:
    """Masses at increasing losses, under the first distribution, and the mass of infinite loss."""

    losses: FloatVector
    masses: FloatVector
    infinite: float = 0.0

    def cut_tail(self, mass: float) -> LossAtoms:
        """Count the largest losses as infinite, as long as their mass is at most `mass`.

        Rare large losses would make the tilted loss wide.
        """
        tails = np.cumsum(self.masses[::-1])[::-1] * (1 + MASS_ERROR)
        kept = int((tails > mass).sum())
        if kept == len(tails):
            return self
        cut = float(tails[kept])
        return LossAtoms(self.losses[:kept], self.masses[:kept], self.infinite + cut)


@lru_cache(maxsize=64)
def loss_atoms(pair: LossPair) -> LossAtoms | None:
    """Return atoms that bound a pair from above; None if its loss is too large to compute."""
    match pair:
        case GaussianPair(mu_squared=mu_squared):
            return _gaussian_atoms(mu_squared)
        case DiscreteGaussianPair(sigma=sigma):
            return _discrete_gaussian_atoms(sigma)
        case LaplacePair(epsilon=epsilon):
            return _geometric_atoms(epsilon / CELLS, CELLS)
        case GeometricPair(step=step, shift=shift):
            return _geometric_atoms(step, shift)
        case KaryPair(values=values, noise=noise):
            return _kary_atoms(values, noise)


def _gaussian_atoms(mu_squared: Fraction) -> LossAtoms | None:
    """Return the ends of cells of y ~ N(0, 1), where the loss is μy + μ²/2."""
    mu = math.sqrt(mu_squared) * (1 + MASS_ERROR)
    if not 0 < mu <= MAX_MU:
        return None
    y = np.linspace(-RADIUS - mu, RADIUS, CELLS + 1)
    losses = mu * y + mu * mu / 2
    mass, mass_error = _normal_masses(y)
    other, other_error = _normal_masses(y + mu)
    mass = mass + mass_error
    # The part at the upper end is (P − e^low·Q)/(1 − e^(low−high)), with Q rounded down.
    kept = np.exp(losses[:-1]) * np.maximum(other * (1 - MASS_ERROR) - other_error, 0)
    upper = (mass - kept) / -np.expm1(-np.diff(losses)) * (1 + MASS_ERROR)
    upper = np.clip(upper, 0, mass)
    masses = np.zeros_like(y)
    masses[:-1] += mass - upper
    masses[1:] += upper
    tail = math.erfc(RADIUS / math.sqrt(2)) / 2 * (1 + MASS_ERROR)
    masses[0] += tail  # the mass below all cells; its losses are smaller
    return LossAtoms(losses, masses * (1 + MASS_ERROR), tail)


def _normal_masses(y: FloatVector) -> tuple[FloatVector, FloatVector]:
    """Return the mass of N(0, 1) between successive points, and a bound of its error.

    A difference of tails is taken on the side of zero on which the tails are small.
    """
    tails = np.array([math.erfc(abs(x) / math.sqrt(2)) / 2 for x in y.tolist()])
    low, high = tails[:-1], tails[1:]
    is_straddling = (y[:-1] < 0) & (y[1:] > 0)
    masses = np.where(is_straddling, 1 - low - high, np.abs(high - low))
    return masses, 2 * MASS_ERROR * np.maximum(low, high) + is_straddling * 2.0**-52


def _discrete_gaussian_atoms(sigma: Fraction) -> LossAtoms | None:
    """Return the integers within 13 σ; the loss at x is (1 − 2x)/(2σ²)."""
    if not Fraction(1, 16) <= sigma <= MAX_ATOMS / 32:
        return None
    radius, scale = math.ceil(13 * sigma) + 1, float(2 * sigma * sigma)
    x = np.arange(radius, -radius - 1, -1, dtype=np.float64)
    weights = np.exp(-x * x / scale)
    masses = weights / weights.sum() * (1 + MASS_ERROR)
    tail = 1e-30  # more than the mass beyond 13 σ
    masses[0] += tail
    return LossAtoms((1 - 2 * x) / scale, masses, tail)


def _geometric_atoms(step: Fraction, shift: int) -> LossAtoms | None:
    """Return the losses step·(shift − 2t), t = 0 … shift: the noise clipped to [0, shift].

    With many values, only every n-th one is kept, where n divides the shift. Its pair dominates.
    """
    if step * shift > MAX_EPSILON:
        return None
    if shift > CELLS:
        coarse = next(n for n in range(CELLS, 0, -1) if shift % n == 0)
        step, shift = step * (shift // coarse), coarse
    e = float(step) * (1 + 2.0**-50)
    t = np.arange(shift, -1, -1, dtype=np.float64)
    masses = math.tanh(e / 2) * np.exp(-e * t)
    masses[[0, -1]] = np.exp(-e * t[[0, -1]]) / (1 + math.exp(-e))
    return LossAtoms(e * (shift - 2 * t), masses * (1 + MASS_ERROR))


def _kary_atoms(values: int, noise: Fraction) -> LossAtoms | None:
    low = noise / values
    epsilon = math.log1p(float((1 - noise) / low)) * (1 + 2.0**-48)
    if epsilon > MAX_EPSILON:
        return None
    masses = np.array([float(low), float((values - 2) * low), float(1 - noise + low)])
    return LossAtoms(np.array([-epsilon, 0.0, epsilon]), masses * (1 + MASS_ERROR))
