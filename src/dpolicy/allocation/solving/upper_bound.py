"""Upper bound on the utility of a round, with dual prices that prove it.

Every limit implies a linear inequality Σ share · x ≤ 1, so the linear relaxation of all limits
bounds the round. The inequality of a limit is added when the relaxed solution violates the limit;
the bound is valid with any of them missing. The reported bound is not the objective value of the
solver but what its dual prices prove: for prices y ≥ 0 no selection has a higher utility than
Σ y + Σ max(0, utility − price of the candidate's shares). Integer solutions also satisfy cuts
(`rounding_cuts.py`), which tighten the bound in the same way.
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

#: Limits added in the first iteration, and in each later one.
_FIRST_LIMITS, _MORE_LIMITS = 100, 150
#: Violation of a limit that is tolerated before the limit is added, and number of iterations.
_TOLERANCE, _ROUNDS = 1e-3, 12
#: Iterations stop when the bound falls by less than this share of it.
_MIN_IMPROVEMENT = 1e-3
#: Factor that covers the float error of sums.
_MARGIN = 1 + 1e-9
#: Number of times that cuts are added and the relaxation is solved again.
_CUT_ROUNDS = 3
#: Steps of the subgradient method.
_SUBGRADIENT_STEPS = 200


@dataclass(frozen=True, slots=True, eq=False)
class FractionalSolution:
    """Solution x of the linear relaxation, with the limits that it satisfies and their dual prices.

    `shares` (limits × candidates) holds the inequalities of `limits`. `excluded` marks candidates
    that need more than the whole capacity of a limit.
    """

    x: Floats
    limits: IndexArray
    shares: Floats
    prices: Floats
    excluded: NDArray[np.bool_]

    def candidate_prices(self) -> Floats:
        """Return the price of each candidate's shares at the dual prices."""
        totals: Floats = (self.prices[:, None] * self.shares).sum(axis=0)
        return totals


@dataclass(frozen=True, slots=True, eq=False)
class TightenedSolution:
    """Solution x of the relaxation with cuts, the price of each candidate, and the proven bound."""

    x: Floats
    candidate_prices: Floats
    bound: float


@dataclass(frozen=True, slots=True, eq=False)
class UpperBound:
    """Upper bound on the utility of a round, and the relaxation whose prices prove it."""

    value: float
    relaxation: FractionalSolution

    def solution_for(self, matrix: ConstraintMatrix, selected: NDArray[np.bool_]) -> Solution:
        """Return a selection together with this bound and the prices of the rows."""
        return Solution(selected, self.value, self.row_prices(matrix))

    def row_prices(self, matrix: ConstraintMatrix) -> Floats:
        """Return the price of the whole remaining budget of each row."""
        rows = matrix.limit_rows[self.relaxation.limits]
        prices = np.zeros(len(matrix.membership))
        np.add.at(prices, rows, self.relaxation.prices)
        return prices


def compute_upper_bound(utilisation_table: UtilisationTable) -> UpperBound:
    """Compute the bound by linear programming; without a solver, a looser one by subgradients."""
    matrix = utilisation_table.matrix
    if is_installed():
        relaxation = solve_relaxation(utilisation_table)
        return UpperBound(tighten_with_cuts(matrix, relaxation).bound, relaxation)
    relaxation = _solve_by_subgradient(utilisation_table)
    capacity_price = float(relaxation.prices.sum())
    bound = _dual_bound(matrix, relaxation, relaxation.candidate_prices(), capacity_price)
    return UpperBound(bound, relaxation)


def tighten_with_cuts(
    matrix: ConstraintMatrix, relaxation: FractionalSolution
) -> TightenedSolution:
    """Solve the relaxation again, adding cuts while the solution violates some."""
    available = matrix.fits_alone & ~relaxation.excluded
    model = LinearModel(matrix.utilities, available)
    values, limits = relaxation.shares * available, np.ones(len(relaxation.shares))
    model.add_constraints(values, limits)
    result = model.solve_relaxed()
    for _ in range(_CUT_ROUNDS):
        cuts, cut_limits = rounding_cuts(values[: len(relaxation.shares)], result.x)
        if not len(cuts):
            break
        model.add_constraints(cuts, cut_limits)
        values, limits = np.concatenate([values, cuts]), np.concatenate([limits, cut_limits])
        result = model.solve_relaxed()
    prices = (result.prices[:, None] * values).sum(axis=0)
    bound = _dual_bound(matrix, relaxation, prices, float((result.prices * limits).sum()))
    return TightenedSolution(result.x, prices, bound)


def _dual_bound(
    matrix: ConstraintMatrix,
    relaxation: FractionalSolution,
    candidate_prices: Floats,
    capacity_price: float,
) -> float:
    """Return the bound that dual prices prove; `capacity_price` is the price of all capacities."""
    available = matrix.fits_alone & ~relaxation.excluded
    utilities = matrix.utilities[available]
    surplus = np.maximum(utilities - candidate_prices[available], 0).sum()
    return min(max(capacity_price + float(surplus), 0.0), float(utilities.sum())) * _MARGIN


def solve_relaxation(
    utilisation_table: UtilisationTable,
    columns: IndexArray | None = None,
    first: IndexArray | None = None,
) -> FractionalSolution:
    """Solve the linear relaxation, adding violated limits step by step.

    With `columns`, each limit is measured in that column; without, each candidate is measured in
    its own best column. `first` are the limits of the first iteration.
    """
    matrix = utilisation_table.matrix
    model = LinearModel(matrix.utilities, matrix.fits_alone)
    limits, shares = np.empty(0, np.intp), [np.empty((0, len(matrix.fits_alone)))]
    excluded = np.zeros(len(matrix.fits_alone), dtype=np.bool_)
    x, prices, value = matrix.fits_alone.astype(np.float64), np.empty(0), np.inf
    for iteration in range(_ROUNDS):
        if iteration == 0 and first is not None and len(first):
            added = first
        else:
            count = _MORE_LIMITS if iteration else _FIRST_LIMITS
            added = _most_violated(_limit_utilisation(utilisation_table, x, columns), limits, count)
        if not len(added):
            break
        new = utilisation_shares(matrix, added, None if columns is None else columns[added])
        excluded |= (new > 1).any(axis=0)
        new = np.minimum(new, 2.0)
        limits = np.concatenate([limits, added])
        shares.append(new)
        model.exclude(excluded)
        model.add_constraints(new, np.ones(len(new)))
        result, previous = model.solve_relaxed(), value
        x, prices, value = result.x, result.prices, result.bound
        if iteration and columns is None and previous - value <= _MIN_IMPROVEMENT * value:
            break
    return FractionalSolution(x, limits, np.concatenate(shares), prices, excluded)


def _limit_utilisation(
    utilisation_table: UtilisationTable, x: Floats, columns: IndexArray | None
) -> Floats:
    """Return the utilisation of each limit, in its column or in the least used one."""
    by_column = utilisation_table.utilisation(x)
    if columns is None:
        columns = by_column.argmin(axis=1)
    utilisation: Floats = by_column[np.arange(len(by_column)), columns]
    return utilisation


def _most_violated(utilisation: Floats, limits: IndexArray, count: int) -> IndexArray:
    """Return up to `count` of the most violated limits that are not in `limits`.

    Neighbouring limits are similar, so only local maxima are returned.
    """
    violated = np.where(utilisation > 1 + _TOLERANCE, utilisation, 0.0)
    violated[limits] = 0.0
    padded = np.concatenate([[0.0], violated, [0.0]])
    peaks = np.flatnonzero((violated > 0) & (violated >= padded[:-2]) & (violated > padded[2:]))
    order = np.argsort(-violated[peaks], kind="stable")
    return peaks[order[:count]]


def _solve_by_subgradient(utilisation_table: UtilisationTable) -> FractionalSolution:
    """Find dual prices by the subgradient method.

    A price rises if the selection at the current prices violates its limit, and falls otherwise.
    """
    matrix = utilisation_table.matrix
    all_candidates = matrix.fits_alone.astype(np.float64)
    limits = _most_violated(
        _limit_utilisation(utilisation_table, all_candidates, None),
        np.empty(0, np.intp),
        _MORE_LIMITS,
    )
    shares = utilisation_shares(matrix, limits)
    excluded: NDArray[np.bool_] = np.any(shares > 1, axis=0)
    shares = np.minimum(shares, 2.0)
    utilities = np.where(matrix.fits_alone & ~excluded, matrix.utilities, 0.0)
    prices = best_prices = np.zeros(len(limits))
    best_value = utilities.sum()
    for step in range(_SUBGRADIENT_STEPS):
        surplus = utilities - (prices[:, None] * shares).sum(axis=0)
        value = prices.sum() + np.maximum(surplus, 0).sum()
        if value < best_value:
            best_prices, best_value = prices, value
        slope = (shares * (surplus > 0)).sum(axis=1) - 1
        length = (slope * slope).sum()
        if length == 0:
            break
        stride = 0.1 * best_value / (1 + step / 10) / length
        prices = np.maximum(prices + stride * slope, 0)
    return FractionalSolution(all_candidates, limits, shares, best_prices, excluded)
