"""Row sums: exact sums of many losses, each as often as its count, saturated at `INFINITE`.

A product of an amount and a count may exceed 64 bits. Each amount is split into two halves of 30
bits, whose sums cannot overflow for fewer than 2³² releases.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray

_HALF = 30
_MAX_COUNT = 2**32


def sum_rows(
    rows: LossArray, counts: NDArray[np.int64], targets: NDArray[np.intp], size: int
) -> LossArray:
    """Return `size` sums of count × row; `targets` has the number of the sum of each row."""
    if int(counts.sum()) >= _MAX_COUNT:
        raise InvariantBroken(f"{counts.sum()} releases are too many for an exact sum")
    weights = counts[:, np.newaxis]
    high = np.zeros((size, rows.shape[1]), np.int64)
    low = np.zeros_like(high)
    np.add.at(high, targets, (rows >> _HALF) * weights)
    np.add.at(low, targets, (rows & (2**_HALF - 1)) * weights)
    high += low >> _HALF
    low &= 2**_HALF - 1
    is_infinite = high >= INFINITE >> _HALF
    sums = (np.where(is_infinite, 0, high) << _HALF) + low
    return np.where(is_infinite, INFINITE, np.minimum(sums, INFINITE))
