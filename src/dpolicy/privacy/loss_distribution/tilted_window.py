"""Tilt and window of a composition: where the mass lies that decides δ at an ε.

Any tilt and any window give an upper bound; this module chooses those with a small one. A good tilt
moves the mean of the composed loss to the ε of interest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpolicy.privacy.loss_distribution.fft_composition import ComposedLosses, compose
from dpolicy.privacy.loss_distribution.grid_measure import split_atoms
from dpolicy.privacy.loss_distribution.loss_atoms import FloatVector, LossAtoms

#: Tilts to choose from.
TILTS: FloatVector = 2.0 ** (np.arange(-16, 33) / 2)

#: Width of the window in standard deviations of the tilted loss, and least width in 1/tilt.
_DEVIATIONS, _LEAST_WIDTH = 24.0, 8.0


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Atoms of one pair in one direction, and the number of independent draws."""

    atoms: LossAtoms
    count: int


def log_moments(parts: Sequence[Draws]) -> FloatVector:
    """Return log E e^(λ·loss) of all draws together, for every tilt λ."""
    total = np.zeros(len(TILTS))
    for part in parts:
        present = part.atoms.masses > 0
        exponents = np.multiply.outer(TILTS, part.atoms.losses[present])
        exponents += np.log(part.atoms.masses[present])
        tops = exponents.max(axis=1)
        np.exp(exponents - tops[:, np.newaxis], out=exponents)
        total += part.count * (tops + np.log(exponents.sum(axis=1)))
    return total


def choose_tilt(moments: FloatVector, log_delta: float, epsilon: Fraction | None) -> float:
    """Return the tilt with the smallest bound of δ at ε, or without an ε, of ε at δ."""
    if epsilon is not None:
        return float(TILTS[int((moments - TILTS * float(epsilon)).argmin())])
    converted = (moments - log_delta - np.log1p(TILTS)) / TILTS - np.log1p(1 / TILTS)
    return float(TILTS[int(converted.argmin())])


def compose_draws(parts: Sequence[Draws], tilt: float, size: int) -> ComposedLosses:
    """Compose all draws in a window around the mean of the tilted loss."""
    mean = variance = 0.0
    for part in parts:
        own_mean, own_variance = _tilted_moments(part.atoms, tilt)
        mean += part.count * own_mean
        variance += part.count * own_variance
    width = max(_DEVIATIONS * math.sqrt(variance), _LEAST_WIDTH / tilt)
    factors = [(split_atoms(part.atoms, width / size), part.count) for part in parts]
    return compose(factors, tilt, mean, size)


def _tilted_moments(atoms: LossAtoms, tilt: float) -> tuple[float, float]:
    """Return mean and variance of a loss under masses·e^(tilt·loss)."""
    present = atoms.masses > 0
    losses = atoms.losses[present]
    exponents = tilt * losses + np.log(atoms.masses[present])
    weights = np.exp(exponents - exponents.max())
    weights /= weights.sum()
    mean = float((weights * losses).sum())
    return mean, float((weights * (losses - mean) ** 2).sum())
