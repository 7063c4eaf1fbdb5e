"""Privacy filter: the only comparison of a loss with a budget that decides (theory 2.3).

A release fits if the composed δ-side is within the δ-side of the bound, and if all thresholds of at
least one clause hold. Both sides are exact: there is no tolerance. A per-release rule also holds if
a certified ε is within its budget (docs/theory/exact.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import floor

import numpy as np
from numpy.typing import NDArray

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.loss import INFINITE, Certificates, Loss, add_losses
from dpolicy.privacy.loss_arrays import DELTA_QUANTA, LossArray, loss_to_row
from dpolicy.privacy.thresholds import BudgetBound

#: Indices of cells: groups of blocks with the same losses.
CellIndices = NDArray[np.intp]

#: Limit of a certificate that a bound does not offer: every amount is above it.
NEVER = -1

#: Number of repetitions without a limit.
UNLIMITED = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True, eq=False)
class BoundArrays:
    """Budget bounds as arrays: a row of limits per bound, and whether all certificates must hold.

    A bound either offers several certificates, of which one must hold, or requires all that it
    names.
    """

    maximum: LossArray
    require_all: NDArray[np.bool_]

    def __getitem__(self, numbers: Sequence[int] | NDArray[np.int32]) -> BoundArrays:
        """Return the bounds with these numbers, in this order."""
        return BoundArrays(self.maximum[numbers], self.require_all[numbers])

    def are_within(self, rows: LossArray) -> NDArray[np.bool_]:
        """Return whether each row is within the bound of the same position."""
        certified, within_delta = self.check_sides(rows)
        satisfied: NDArray[np.bool_] = certified & within_delta
        return satisfied

    def check_sides(self, rows: LossArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return whether each row is within the certificates, and within the δ-side, of its bound.

        A rule is satisfied if both are true. The first is the side of ε, ρ, μ or Rényi values; the
        second is the limit of stated leaks.
        """
        within = rows <= self.maximum
        certified = np.where(
            self.require_all, within[:, :-1].all(axis=1), within[:, :-1].any(axis=1)
        )
        return certified, within[:, -1]

    @property
    def delta_limits(self) -> LossArray:
        """The δ-side of each bound, in quanta of δ; `INFINITE` for an unlimited budget."""
        limits: LossArray = self.maximum[:, -1]
        return limits

    def remaining_delta(self, rows: LossArray) -> LossArray:
        """Return what each row leaves of the δ-side of its bound, at least 0, in quanta of δ."""
        limits = self.delta_limits
        remaining: LossArray = np.where(
            limits == INFINITE, INFINITE, np.maximum(limits - rows[:, -1], 0)
        )
        return remaining

    def violating_or_fullest_cells(
        self, spent: LossArray, cells: CellIndices, cost: LossArray
    ) -> tuple[CellIndices, CellIndices]:
        """Return the cells in which `cost` exceeds the only bound, and the fullest cells.

        `cells` are columns of `spent`. The second result is empty if any cell is exceeded.
        Otherwise it has the cells with the largest amount in the certificate that is least used in
        the first cell. If one certificate is enough, that certificate is tried first, and the
        others only for the cells that remain.
        """
        (limits,), unbounded = self.maximum, self.maximum[0] == INFINITE
        room = np.where(unbounded, INFINITE, limits - cost)
        offered = np.flatnonzero(~unbounded[:-1] & (limits[:-1] >= 0))
        shares = (spent[offered, cells[0]] - room[offered]) / np.maximum(limits[offered], 1)
        order = offered[np.argsort(shares, kind="stable")].tolist()
        amounts = spent[order[0], cells] if order else np.zeros(len(cells), np.int64)
        if self.require_all[0]:
            over = [spent[c, cells] > room[c] for c in order]
            exceeded = cells.compress(np.logical_or.reduce(over)) if over else cells[:0]
        else:
            exceeded = cells.compress(amounts > room[order[0]]) if order else cells
            for column in order[1:] if len(exceeded) else ():
                exceeded = exceeded.compress(spent[column, exceeded] > room[column])
        delta_exceeded = cells.compress(spent[-1, cells] > room[-1])
        if len(delta_exceeded):
            exceeded = np.union1d(exceeded, delta_exceeded)
        if len(exceeded):
            return exceeded, cells[:0]
        return exceeded, cells.compress(amounts == amounts.max())

    def count_repetitions(self, spent: LossArray, cost: LossArray) -> LossArray:
        """Return how often each cost fits into its bound; `UNLIMITED` if it always fits.

        The last axis has the columns and the one before it the bounds. A number n fits if `spent` +
        n × `cost` is within the bound. Each certificate is linear in n, so n is a floor division,
        exact in integers; a saturated sum is above every limit.
        """
        room = self.maximum - spent
        fitting = np.floor_divide(
            room, cost, out=np.full(room.shape, UNLIMITED), where=np.asarray(cost > 0)
        )
        fitting[room < 0] = 0
        fitting[np.broadcast_to(self.maximum == INFINITE, room.shape)] = UNLIMITED
        certified = np.where(
            self.require_all, fitting[..., :-1].min(axis=-1), fitting[..., :-1].max(axis=-1)
        )
        counts: LossArray = np.minimum(certified, fitting[..., -1])
        return counts

    def remaining_share(self, rows: LossArray) -> NDArray[np.float64]:
        """Return the remaining share of each row's bound: the smaller of its two sides.

        It is the share of the least used certificate, or of the most used one if all must hold, or
        the share of the δ-side. It is −1 if a side is exceeded and 2 if it has no limit.
        """
        shares = 1 - rows / np.maximum(self.maximum, 1)
        shares[rows > self.maximum] = -1
        shares[self.maximum == INFINITE] = 2
        certified = np.where(
            self.require_all, shares[:, :-1].min(axis=1), shares[:, :-1].max(axis=1)
        )
        result: NDArray[np.float64] = np.minimum(certified, shares[:, -1])
        return result


def build_bound_arrays(bounds: Sequence[BudgetBound], certificates: Certificates) -> BoundArrays:
    """Return bounds as arrays for losses in these certificates.

    Raise `InvariantBroken` if a bound names another certificate, or has several clauses of which
    one has several certificates.
    """
    columns = {certificate: column for column, certificate in enumerate(certificates)}
    limits = np.full((len(bounds), len(certificates) + 1), NEVER, dtype=np.int64)
    require_all = np.zeros(len(bounds), dtype=bool)
    for number, bound in enumerate(bounds):
        require_all[number] = len(bound.clauses) == 1
        if require_all[number]:
            limits[number] = INFINITE
        elif any(len(clause) != 1 for clause in bound.clauses):
            raise InvariantBroken("a bound has several clauses, and one has several certificates")
        for certificate, limit in (t for clause in bound.clauses for t in clause):
            if certificate not in columns:
                raise InvariantBroken(f"losses are not stored in {certificate}")
            limits[number, columns[certificate]] = min(limit, INFINITE - 1)
        limits[number, -1] = INFINITE if bound.delta is None else floor(bound.delta * DELTA_QUANTA)
    return BoundArrays(limits, require_all)


def fits_budget(spent: Loss, cost: Loss, bound: BudgetBound) -> bool:
    """Return whether the composition of `spent` and `cost` is within a bound."""
    return is_within(add_losses(spent, cost), bound)


def is_within(loss: Loss, bound: BudgetBound) -> bool:
    """Return whether a loss is within a bound."""
    arrays = _single_bound(bound, loss.certificates)
    return bool(arrays.are_within(loss_to_row(loss)[np.newaxis])[0])


def fits_exactly(epsilon: Fraction | None, budget: EpsilonDelta) -> bool:
    """Return whether a certified ε at the δ of a budget is within its ε; False without one.

    Only for mechanisms that are fixed before any of them runs.
    """
    return epsilon is not None and epsilon <= budget.epsilon


@lru_cache(maxsize=256)
def _single_bound(bound: BudgetBound, certificates: Certificates) -> BoundArrays:
    return build_bound_arrays([bound], certificates)
