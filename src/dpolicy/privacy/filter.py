"""Losses and bounds → whether they fit: the only comparison with a budget anywhere (theory 2.3).

A release fits if the δ-side of all that was spent with it is within the bound's, and if at least
one clause of certificates still holds. Both sides are exact: there is no tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor

import numpy as np
from numpy.typing import NDArray

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss import INFINITE, Certificates, Loss, add_losses
from dpolicy.privacy.loss_arrays import DELTA_QUANTA, LossArray, loss_to_row
from dpolicy.privacy.thresholds import BudgetBound

#: Numbers of blocks that share their losses.
CellIndices = NDArray[np.intp]

#: No amount is this small: a certificate that a bound does not offer.
NEVER = -1


@dataclass(frozen=True, slots=True, eq=False)
class BoundArrays:
    """Bounds laid out for rows: the most of each column, and whether all certificates must hold.

    A bound either offers several certificates of which one must hold, or asks for all it names.
    """

    maximum: LossArray
    require_all: NDArray[np.bool_]

    def __getitem__(self, numbers: Sequence[int] | NDArray[np.int32]) -> BoundArrays:
        """Some of the bounds, in the order asked for."""
        return BoundArrays(self.maximum[numbers], self.require_all[numbers])

    def are_within(self, rows: LossArray) -> NDArray[np.bool_]:
        """Whether each row is within the bound beside it."""
        within = rows <= self.maximum
        certified = np.where(
            self.require_all, within[:, :-1].all(axis=1), within[:, :-1].any(axis=1)
        )
        held: NDArray[np.bool_] = certified & within[:, -1]
        return held

    def violating_or_fullest_cells(
        self, spent: LossArray, cells: CellIndices, cost: LossArray
    ) -> tuple[CellIndices, CellIndices]:
        """Of cells (columns of `spent`): those in which a cost breaks the only bound; and if there
        are none, those that are fullest in the certificate that looked best.

        Where one certificate is enough, the one that looks best in the first cell is tried first,
        and the next only for the cells that are left.
        """
        (most,), free = self.maximum, self.maximum[0] == INFINITE
        room = np.where(free, INFINITE, most - cost)
        offered = np.flatnonzero(~free[:-1] & (most[:-1] >= 0))
        shares = (spent[offered, cells[0]] - room[offered]) / np.maximum(most[offered], 1)
        order = offered[np.argsort(shares)].tolist()
        amounts = spent[order[0]].take(cells) if order else np.zeros(len(cells), np.int64)
        if self.require_all[0]:
            over = [spent[c].take(cells) > room[c] for c in order]
            broken = cells.compress(np.logical_or.reduce(over)) if over else cells[:0]
        else:
            broken = cells.compress(amounts > room[order[0]]) if order else cells
            for column in order[1:] if len(broken) else ():
                broken = broken.compress(spent[column].take(broken) > room[column])
        leaking = cells.compress(spent[-1].take(cells) > room[-1])
        if len(leaking):
            broken = np.union1d(broken, leaking)
        return broken, cells[:0] if len(broken) else cells.compress(amounts == amounts.max())

    def remaining_share(self, rows: LossArray) -> NDArray[np.float64]:
        """The share of its bound that each row leaves, at the certificate that leaves most."""
        most, amounts = self.maximum[:, :-1], rows[:, :-1]
        left = 1 - amounts / np.maximum(most, 1)
        left[amounts > most] = -1
        left[most == INFINITE] = 2
        best: NDArray[np.float64] = np.where(self.require_all, left.min(axis=1), left.max(axis=1))
        return best


def build_bound_arrays(bounds: Sequence[BudgetBound], certificates: Certificates) -> BoundArrays:
    """Lay bounds out for losses in these certificates; all that they name must be among them."""
    place = {certificate: position for position, certificate in enumerate(certificates)}
    most = np.full((len(bounds), len(certificates) + 1), NEVER, dtype=np.int64)
    every = np.zeros(len(bounds), dtype=bool)
    for number, bound in enumerate(bounds):
        every[number] = len(bound.clauses) == 1
        if every[number]:
            most[number] = INFINITE
        elif any(len(clause) != 1 for clause in bound.clauses):
            raise InvariantBroken("a bound offers several certificates together")
        for certificate, limit in (t for clause in bound.clauses for t in clause):
            if certificate not in place:
                raise InvariantBroken(f"losses are not kept in {certificate}")
            most[number, place[certificate]] = min(limit, INFINITE - 1)
        most[number, -1] = INFINITE if bound.delta is None else floor(bound.delta * DELTA_QUANTA)
    return BoundArrays(most, every)


def fits_budget(spent: Loss, cost: Loss, bound: BudgetBound) -> bool:
    """Whether `cost` may be added to `spent`."""
    return is_within(add_losses(spent, cost), bound)


def is_within(loss: Loss, bound: BudgetBound) -> bool:
    """Whether a loss is within a bound."""
    return bool(_one(bound, loss.certificates).are_within(loss_to_row(loss)[np.newaxis])[0])


@lru_cache(maxsize=256)
def _one(bound: BudgetBound, certificates: Certificates) -> BoundArrays:
    return build_bound_arrays([bound], certificates)
