"""Losses as rows of 64-bit integers, to charge and compare many rules at once (theory 9).

A row has the quanta of every certificate and, last, the δ-side in quanta of 10⁻¹⁸, rounded up once.
Sums saturate at `INFINITE`; the sum of two numbers up to `INFINITE` does not overflow.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from dpolicy.privacy.loss import INFINITE, Certificates, Loss

#: One row, or a matrix of rows.
LossArray = NDArray[np.int64]

#: Quanta in a δ of 1.
DELTA_QUANTA = 10**18


def loss_width(certificates: Certificates) -> int:
    """Return the number of integers in a row."""
    return len(certificates) + 1


def loss_to_row(loss: Loss) -> LossArray:
    """Return a loss as a row."""
    return np.array([*loss.amounts, _delta_up(loss.delta)], dtype=np.int64)


def losses_to_array(losses: Iterable[Loss]) -> LossArray:
    """Return losses as a matrix with one row per loss."""
    return np.array([[*loss.amounts, _delta_up(loss.delta)] for loss in losses], dtype=np.int64)


def row_to_loss(row: LossArray, certificates: Certificates) -> Loss:
    """Return the loss of a row."""
    *amounts, delta = row.tolist()
    return Loss(certificates, tuple(amounts), Fraction(delta, DELTA_QUANTA))


def add_saturating(a: LossArray, b: LossArray) -> LossArray:
    """Return the elementwise sum, saturated at `INFINITE`."""
    total: LossArray = np.minimum(a + b, INFINITE)
    return total


def _delta_up(delta: Fraction) -> int:
    return ceil(delta * DELTA_QUANTA) if delta else 0
