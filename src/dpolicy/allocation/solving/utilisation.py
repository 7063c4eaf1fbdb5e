"""A choice, whole or in parts → how full it makes the limits, in shares of what is left.

These are floats: they rank, price and propose. What fits is decided in `feasible.py` alone. Sums
are over whole numbers below 2⁵³, so that they are the same in whatever order a machine adds them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.solving.constraint_matrix import ConstraintMatrix, IndexArray

Floats = NDArray[np.float64]

#: Limits that are laid out at a time.
_CHUNK = 256


class UtilisationTable:
    """A table made ready for weighing many choices."""

    def __init__(self, table: ConstraintMatrix) -> None:
        self.table = table
        self._parts = [
            np.flatnonzero(table.cost_book_of_row == book) for book in range(len(table.costs))
        ]
        self._inside = [table.membership[rows].astype(np.float64) for rows in self._parts]
        most = 2.0 * table.capacity.max(axis=0, initial=0) + 1
        self.costs: Floats = np.minimum(table.costs.astype(np.float64), most)

    def sum_over_rows(self, amounts: Floats) -> Floats:
        """Rows × any columns: sums of books × candidates × columns over who is inside."""
        whole, unit = _whole(amounts, amounts.shape[1])
        found = np.empty((len(self.table.membership), amounts.shape[2]))
        for rows, inside, part in zip(self._parts, self._inside, whole, strict=True):
            found[rows] = inside @ part
        return found * unit

    def priced_costs(self, prices: Floats) -> Floats:
        """By candidate, what its costs come to at prices by rows × columns."""
        whole, unit = _whole(prices[None], len(prices))
        found = np.zeros(len(self.table.fits_alone))
        for rows, inside, costs in zip(self._parts, self._inside, self.costs, strict=True):
            found += (costs * (inside.T @ whole[0, rows]) * unit).sum(axis=1)
        return found

    def utilisation(self, x: Floats) -> Floats:
        """Limits × columns: the share of what is left that a choice takes; infinite where not
        offered."""
        spent = self.sum_over_rows(self.costs * x[:, None])
        return _parts(spent[self.table.limit_rows], self.table.capacity)


def utilisation_shares(
    table: ConstraintMatrix, limits: IndexArray, columns: IndexArray | None = None
) -> Floats:
    """Limits × candidates: the share each takes, in one column each or in its own best column.

    That Σ cᵢ ≤ left in some column implies that Σ best shareᵢ ≤ 1, so the second kind is a bound.
    """
    rows = table.limit_rows[limits]
    books, room = table.cost_book_of_row[rows], table.capacity[limits]
    if columns is not None:
        at = np.arange(len(limits))
        spent = np.ascontiguousarray(np.moveaxis(table.costs, 2, 1))[books, columns]
        found = _parts(spent, room[at, columns][:, None])
    else:
        found = np.full((len(limits), len(table.fits_alone)), np.inf)
        for column in range(room.shape[1]):
            spent = np.ascontiguousarray(table.costs[:, :, column])[books]
            np.minimum(found, _parts(spent, room[:, column, None]), out=found)
    found[~table.membership[rows]] = 0.0
    return found


def limit_chunks(table: ConstraintMatrix) -> Iterator[IndexArray]:
    """All limits, some at a time."""
    for begin in range(0, len(table.capacity), _CHUNK):
        yield np.arange(begin, min(begin + _CHUNK, len(table.capacity)))


def _parts(spent: NDArray[np.int64] | Floats, room: NDArray[np.int64]) -> Floats:
    """Parts of the room: infinite where there is none, and many times zero, but zero of it none."""
    found: Floats = spent / np.maximum(room, 0.5)
    found += np.where(room < 0, np.inf, 0.0)
    return found


def _whole(amounts: Floats, count: int) -> tuple[Floats, Floats]:
    """Amounts by column in whole units of which so many add up to less than 2⁵³, and the units."""
    peak = amounts.max(axis=(0, 1), initial=0.0) * count
    unit = np.exp2(np.ceil(np.log2(np.where(peak > 0, peak, 1))) - 52)
    return np.rint(amounts / unit), unit
