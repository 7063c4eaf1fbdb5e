"""Grid measures: loss atoms moved to multiples of a step, for composition by Fourier transforms.

An atom between two multiples is split between them such that the masses under both distributions
stay, as a cell is (docs/theory/exact.md, statement 2). Losses are first raised by more than their
rounding errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.privacy.loss_distribution.loss_atoms import MASS_ERROR, FloatVector, LossAtoms

#: Relative and absolute amount by which a loss is raised before it is split.
LOSS_ERROR = 2.0**-45


@dataclass(frozen=True, slots=True, eq=False)
class GridMeasure:
    """Masses at the losses `positions` × `step`; a position can occur several times."""

    step: float
    positions: NDArray[np.int64]
    masses: FloatVector

    @property
    def losses(self) -> FloatVector:
        """The loss of each mass."""
        return np.asarray(self.positions * self.step, np.float64)

    def log_moment(self, tilt: float) -> float:
        """Return log Σ mass·e^(tilt·loss), without overflow."""
        present = self.masses > 0
        exponents = tilt * self.losses[present] + np.log(self.masses[present])
        top = float(exponents.max())
        return top + float(np.log(np.exp(exponents - top).sum()))

    def tilt_masses(self, tilt: float, scale: float, size: int) -> FloatVector:
        """Return mass·e^(tilt·loss − scale) on a circle of `size` positions."""
        present = self.masses > 0
        exponents = np.log(self.masses[present]) + tilt * self.losses[present] - scale
        circle = self.positions[present] % size
        return np.asarray(np.bincount(circle, np.exp(exponents), minlength=size), np.float64)


def split_atoms(atoms: LossAtoms, step: float) -> GridMeasure:
    """Split every atom between the multiples of `step` around it, rounding up."""
    losses = atoms.losses + LOSS_ERROR * (1 + np.abs(atoms.losses))
    below = np.floor(losses / step)
    part = np.expm1(-np.clip(losses - below * step, 0, step)) / np.expm1(-step)
    upper = np.minimum(part * (1 + MASS_ERROR), 1) * atoms.masses
    lower = (atoms.masses - upper) * (1 + MASS_ERROR)
    positions = below.astype(np.int64)
    return GridMeasure(
        step, np.concatenate([positions, positions + 1]), np.concatenate([lower, upper])
    )
