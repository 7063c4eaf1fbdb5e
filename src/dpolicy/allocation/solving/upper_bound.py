"""A round → the most that any choice could be worth, and prices that prove it.

Every limit implies a linear one, its line, so their linear programme bounds the round. Lines are
added where the best choice in parts breaks a limit; a bound holds with any of them missing. What is
told is not the solver's value but what its prices prove: for prices y ≥ 0 no choice is worth more
than Σ y + Σ max(0, utility − price of the candidate's shares). Whole choices keep sharper lines as
well (rounding.py), which prove a lower bound in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.problem.knapsack import Solution
from dpolicy.allocation.solving.constraint_matrix import ConstraintMatrix, IndexArray
from dpolicy.allocation.solving.highs import LinearModel, is_installed
from dpolicy.allocation.solving.rounding_cuts import rounding_cuts
from dpolicy.allocation.solving.utilisation import Floats, UtilisationTable, utilisation_shares

#: Lines to begin with, and to add at a time.
_FIRST, _MORE = 100, 150
#: So far a choice in parts may break a limit before its line is added, and rounds of adding.
_LENIENT, _ROUNDS = 1e-3, 12
#: A bound that falls by less than this part of it is good enough.
_ENOUGH = 1e-3
#: Sums of floats err by less.
_MARGIN = 1 + 1e-9
#: Times that a choice in parts is asked for again with the sharper lines that it breaks.
_SHARPER = 3
#: Steps that look for prices by hand.
_STEPS = 200


@dataclass(frozen=True, slots=True, eq=False)
class FractionalSolution:
    """A choice in parts, the lines that it keeps (those of `limits`), and what they are priced at.

    `out` are those who take more than all of some line.
    """

    x: Floats
    limits: IndexArray
    lines: Floats
    prices: Floats
    out: NDArray[np.bool_]

    def candidate_prices(self) -> Floats:
        """What each candidate's shares cost at these prices."""
        found: Floats = (self.prices[:, None] * self.lines).sum(axis=0)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class TightenedSolution:
    """A choice in parts that keeps sharper lines too, what they cost each, and what they prove."""

    x: Floats
    paid: Floats
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class UpperBound:
    """The most that a round can be worth, and the choice in parts and the prices that prove it."""

    value: float
    parts: FractionalSolution

    def solution_for(self, table: ConstraintMatrix, chosen: NDArray[np.bool_]) -> Solution:
        """A choice beside it."""
        return Solution(chosen, self.value, self.row_prices(table))

    def row_prices(self, table: ConstraintMatrix) -> Floats:
        """What the whole of what is left in each row is worth."""
        rows = table.limit_rows[self.parts.limits]
        found = np.zeros(len(table.membership))
        np.add.at(found, rows, self.parts.prices)
        return found


def compute_upper_bound(scale: UtilisationTable) -> UpperBound:
    """The bound of a round: by linear programme, or looser by hand if there is no solver."""
    table = scale.table
    if is_installed():
        parts = solve_relaxation(scale)
        return UpperBound(tighten_with_cuts(table, parts).value, parts)
    parts = _by_hand(scale)
    return UpperBound(
        _proven(table, parts, parts.candidate_prices(), float(parts.prices.sum())), parts
    )


def tighten_with_cuts(table: ConstraintMatrix, parts: FractionalSolution) -> TightenedSolution:
    """A choice in parts again, with sharper lines as long as it breaks some."""
    open_ = table.fits_alone & ~parts.out
    model = LinearModel(table.utilities, open_)
    lines, most = parts.lines * open_, np.ones(len(parts.lines))
    model.add_constraints(lines, most)
    answer = model.solve_relaxed()
    for _ in range(_SHARPER):
        new, at_most = rounding_cuts(lines[: len(parts.lines)], answer.x)
        if not len(new):
            break
        model.add_constraints(new, at_most)
        lines, most = np.concatenate([lines, new]), np.concatenate([most, at_most])
        answer = model.solve_relaxed()
    paid = (answer.prices[:, None] * lines).sum(axis=0)
    return TightenedSolution(
        answer.x, paid, _proven(table, parts, paid, float((answer.prices * most).sum()))
    )


def _proven(
    table: ConstraintMatrix, parts: FractionalSolution, paid: Floats, prices: float
) -> float:
    """What no choice is worth more than, at prices that come to so much for all that is left."""
    worths = table.utilities[table.fits_alone & ~parts.out]
    over = np.maximum(worths - paid[table.fits_alone & ~parts.out], 0).sum()
    return min(max(prices + float(over), 0.0), float(worths.sum())) * _MARGIN


def solve_relaxation(
    scale: UtilisationTable, columns: IndexArray | None = None, first: IndexArray | None = None
) -> FractionalSolution:
    """The best choice in parts, in one column each or in every candidate's own best column."""
    table = scale.table
    model = LinearModel(table.utilities, table.fits_alone)
    asked, lines = np.empty(0, np.intp), [np.empty((0, len(table.fits_alone)))]
    out = np.zeros(len(table.fits_alone), dtype=np.bool_)
    x, prices, value = table.fits_alone.astype(np.float64), np.empty(0), np.inf
    for turn in range(_ROUNDS):
        begin = first if turn == 0 and first is not None and len(first) else None
        more = begin if begin is not None else _fullest(_loads(scale, x, columns), asked, turn)
        if not len(more):
            break
        new = utilisation_shares(table, more, None if columns is None else columns[more])
        out |= (new > 1).any(axis=0)
        new = np.minimum(new, 2.0)
        asked = np.concatenate([asked, more])
        lines.append(new)
        model.exclude(out)
        model.add_constraints(new, np.ones(len(new)))
        answer, before = model.solve_relaxed(), value
        x, prices, value = answer.x, answer.prices, answer.bound
        if turn and columns is None and before - value <= _ENOUGH * value:
            break
    return FractionalSolution(x, asked, np.concatenate(lines), prices, out)


def _loads(scale: UtilisationTable, x: Floats, columns: IndexArray | None) -> Floats:
    """How full a choice makes each limit, in its column or in the best one."""
    found = scale.utilisation(x)
    if columns is None:
        columns = found.argmin(axis=1)
    taken: Floats = found[np.arange(len(found)), columns]
    return taken


def _fullest(utilisation: Floats, limits: IndexArray, turn: int) -> IndexArray:
    """The most broken limits that were not asked for yet; of neighbours, which are alike, one."""
    broken = np.where(utilisation > 1 + _LENIENT, utilisation, 0.0)
    broken[limits] = 0.0
    around = np.concatenate([[0.0], broken, [0.0]])
    peaks = np.flatnonzero((broken > 0) & (broken >= around[:-2]) & (broken > around[2:]))
    order = np.argsort(-broken[peaks], kind="stable")
    return peaks[order[: _MORE if turn else _FIRST]]


def _by_hand(scale: UtilisationTable) -> FractionalSolution:
    """Prices that rise where the choice they lead to breaks a line, and fall where it does not."""
    table = scale.table
    everyone = table.fits_alone.astype(np.float64)
    limits = _fullest(_loads(scale, everyone, None), np.empty(0, np.intp), 1)
    lines = utilisation_shares(table, limits)
    out: NDArray[np.bool_] = np.any(lines > 1, axis=0)
    lines = np.minimum(lines, 2.0)
    worths = np.where(table.fits_alone & ~out, table.utilities, 0.0)
    prices = best = np.zeros(len(limits))
    least = worths.sum()
    for step in range(_STEPS):
        over = worths - (prices[:, None] * lines).sum(axis=0)
        value = prices.sum() + np.maximum(over, 0).sum()
        best, least = (prices, value) if value < least else (best, least)
        slope = (lines * (over > 0)).sum(axis=1) - 1
        length = (slope * slope).sum()
        if length == 0:
            break
        stride = 0.1 * least / (1 + step / 10) / length
        prices = np.maximum(prices + stride * slope, 0)
    return FractionalSolution(everyone, limits, lines, best, out)
