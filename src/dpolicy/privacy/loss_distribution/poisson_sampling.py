"""Poisson sampling: the loss atoms of a pair on a sample, in both directions.

Removing a unit compares (1−q)Q + qP with Q, adding one compares P with (1−q)P + qQ (Zhu, Dong, Wang
2022, Theorem 11). Both curves are functions of the curve of (P, Q) that grow with it, so atoms that
bound a pair from above give atoms that bound the sampled pair from above
(docs/theory/exact.md, statement 3).
"""

from __future__ import annotations

import math
from enum import Enum

import numpy as np

from dpolicy.privacy.loss_distribution.loss_atoms import MASS_ERROR, LossAtoms


class Direction(Enum):
    """Whether the second database has one unit less or one unit more than the first."""

    REMOVE = "remove"
    ADD = "add"


def sample_atoms(atoms: LossAtoms, rate: float, direction: Direction) -> LossAtoms:
    """Return the atoms of a pair on a Poisson sample of rate 0 < q < 1, by increasing loss."""
    return _remove(atoms, rate) if direction is Direction.REMOVE else _add(atoms, rate)


def _remove(atoms: LossAtoms, q: float) -> LossAtoms:
    """Return the losses log(1 − q + q·e^loss).

    Mass of Q that no atom has, because P has none there, gets the smallest loss.
    """
    second = atoms.masses * np.exp(-atoms.losses)
    missing = max(1 - float(second.sum()) * (1 - MASS_ERROR), 0.0)
    losses = np.log1p(q * np.expm1(atoms.losses))
    masses = q * atoms.masses + (1 - q) * second
    return LossAtoms(
        np.concatenate([[math.log1p(-q)], losses]),
        np.concatenate([[(1 - q) * missing], masses]) * (1 + MASS_ERROR),
        q * atoms.infinite * (1 + MASS_ERROR),
    )


def _add(atoms: LossAtoms, q: float) -> LossAtoms:
    """Return the losses −log(1 − q + q·e^(−loss)); no loss is above −log(1 − q)."""
    losses = -np.log1p(q * np.expm1(-atoms.losses))
    return LossAtoms(
        np.concatenate([losses, [-math.log1p(-q)]]),
        np.concatenate([atoms.masses, [atoms.infinite]]) * (1 + MASS_ERROR),
    )
