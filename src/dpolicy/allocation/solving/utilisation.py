"""Utilisation of limits by a selection, whole or fractional, as shares of the remaining budget.

These are floats: strategies use them to rank, price and propose. Only `greedy_fill.py` decides what
fits. All sums are over integers below 2⁵³, so they do not depend on the order of addition.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.solving.constraint_matrix import ConstraintMatrix, IndexArray

Floats = NDArray[np.float64]

#: Limits per chunk of `limit_chunks`.
_LIMITS_PER_CHUNK = 256


class UtilisationTable:
    """Constraint matrix prepared to compute the utilisation of many selections."""

    def __init__(self, matrix: ConstraintMatrix) -> None:
        self.matrix = matrix
        self._rows_by_table = [
            np.flatnonzero(matrix.row_cost_tables == number) for number in range(len(matrix.costs))
        ]
        self._membership_by_table = [
            matrix.membership[rows].astype(np.float64) for rows in self._rows_by_table
        ]
        maximum = 2.0 * matrix.capacity.max(axis=0, initial=0) + 1
        self.costs: Floats = np.minimum(matrix.costs.astype(np.float64), maximum)

    def sum_over_rows(self, amounts: Floats) -> Floats:
        """Sum amounts over the candidates of each row; the result is rows × columns.

        `amounts` is cost tables × candidates × columns.
        """
        integers, unit = _round_to_units(amounts, amounts.shape[1])
        sums = np.empty((len(self.matrix.membership), amounts.shape[2]))
        for rows, inside, part in zip(
            self._rows_by_table, self._membership_by_table, integers, strict=True
        ):
            sums[rows] = inside @ part
        return sums * unit

    def total_prices(self, prices: Floats) -> Floats:
        """Return Σ cost · price per candidate; `prices` is rows × columns."""
        integers, unit = _round_to_units(prices[None], len(prices))
        totals = np.zeros(len(self.matrix.fits_alone))
        for rows, inside, costs in zip(
            self._rows_by_table, self._membership_by_table, self.costs, strict=True
        ):
            totals += (costs * (inside.T @ integers[0, rows]) * unit).sum(axis=1)
        return totals

    def utilisation(self, x: Floats) -> Floats:
        """Return the share of each capacity that a selection uses, limits × columns.

        It is infinite in columns that a limit does not offer.
        """
        spent = self.sum_over_rows(self.costs * x[:, None])
        return _divide_by_capacity(spent[self.matrix.limit_rows], self.matrix.capacity)


def utilisation_shares(
    matrix: ConstraintMatrix, limits: IndexArray, columns: IndexArray | None = None
) -> Floats:
    """Return the share of each limit that each candidate uses, limits × candidates.

    With `columns`, each limit is measured in that column; without, each candidate is measured in
    its own best column. Σ cᵢ ≤ capacity in some column implies Σ best shareᵢ ≤ 1, so the second
    kind is a valid relaxation.
    """
    rows = matrix.limit_rows[limits]
    tables, capacity = matrix.row_cost_tables[rows], matrix.capacity[limits]
    if columns is not None:
        costs = np.ascontiguousarray(np.moveaxis(matrix.costs, 2, 1))[tables, columns]
        shares = _divide_by_capacity(costs, capacity[np.arange(len(limits)), columns][:, None])
    else:
        shares = np.full((len(limits), len(matrix.fits_alone)), np.inf)
        for column in range(capacity.shape[1]):
            costs = np.ascontiguousarray(matrix.costs[:, :, column])[tables]
            np.minimum(shares, _divide_by_capacity(costs, capacity[:, column, None]), out=shares)
    shares[~matrix.membership[rows]] = 0.0
    return shares


def limit_chunks(matrix: ConstraintMatrix) -> Iterator[IndexArray]:
    """Yield the indices of all limits in chunks."""
    for begin in range(0, len(matrix.capacity), _LIMITS_PER_CHUNK):
        yield np.arange(begin, min(begin + _LIMITS_PER_CHUNK, len(matrix.capacity)))


def _divide_by_capacity(spent: NDArray[np.int64] | Floats, capacity: NDArray[np.int64]) -> Floats:
    """Return spent / capacity; infinite for capacity −1; capacity 0 counts as half a quantum."""
    shares: Floats = spent / np.maximum(capacity, 0.5)
    shares += np.where(capacity < 0, np.inf, 0.0)
    return shares


def _round_to_units(amounts: Floats, count: int) -> tuple[Floats, Floats]:
    """Round amounts to integer multiples of a unit per column; return multiples and units.

    The sum of `count` multiples stays below 2⁵³.
    """
    peak = amounts.max(axis=(0, 1), initial=0.0) * count
    unit = np.exp2(np.ceil(np.log2(np.where(peak > 0, peak, 1))) - 52)
    return np.rint(amounts / unit), unit
