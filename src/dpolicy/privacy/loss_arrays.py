"""Losses ↔ rows of 64-bit integers, so that many rules are charged and compared at once (theory 9).

A row holds the quanta of every certificate and, last, the δ-side in quanta of 10⁻¹⁸, rounded up
once. Sums stay at `INFINITE`, below which two numbers cannot overflow.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from dpolicy.privacy.loss import INFINITE, Certificates, Loss

#: One row, or several below each other.
LossArray = NDArray[np.int64]

#: Quanta in a δ of 1.
DELTA_QUANTA = 10**18


def loss_width(certificates: Certificates) -> int:
    """How many integers a loss becomes."""
    return len(certificates) + 1


def loss_to_row(loss: Loss) -> LossArray:
    """A loss as a row."""
    return np.array([*loss.amounts, _delta_up(loss.delta)], dtype=np.int64)


def losses_to_array(losses: Iterable[Loss]) -> LossArray:
    """Losses as rows below each other."""
    return np.array([[*loss.amounts, _delta_up(loss.delta)] for loss in losses], dtype=np.int64)


def row_to_loss(row: LossArray, certificates: Certificates) -> Loss:
    """The loss of a row."""
    *amounts, delta = row.tolist()
    return Loss(certificates, tuple(amounts), Fraction(delta, DELTA_QUANTA))


def add_saturating(a: LossArray, b: LossArray) -> LossArray:
    """Sums, row by row."""
    total: LossArray = np.minimum(a + b, INFINITE)
    return total


def _delta_up(delta: Fraction) -> int:
    return ceil(delta * DELTA_QUANTA) if delta else 0
