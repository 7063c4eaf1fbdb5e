"""Strategy `efficient` (DPK): greedy fill by utility per budget share.

Every limit is measured in one column: the one in which a fractional knapsack of the remaining
budget holds the most utility. The share of a candidate is the sum of its shares of all limits, each
in that column; candidates without a constraint row come first. The value of a fractional knapsack
is the minimum, over all prices, of capacity · price + Σ max(0, utility − cost · price).
"""

from __future__ import annotations

import numpy as np

from dpolicy.allocation.problem.knapsack import AllocationProblem, Solution
from dpolicy.allocation.solving.constraint_matrix import (
    ConstraintMatrix,
    IndexArray,
    build_constraint_matrix,
)
from dpolicy.allocation.solving.greedy_fill import GreedyFill
from dpolicy.allocation.solving.upper_bound import compute_upper_bound
from dpolicy.allocation.solving.utilisation import Floats, UtilisationTable

#: Number of prices tried per knapsack.
_TRIED_PRICES = 12


def efficient(problem: AllocationProblem) -> Solution:
    """Take candidates by descending utility per share and select each that still fits."""
    matrix = build_constraint_matrix(problem)
    utilisation_table = UtilisationTable(matrix)
    selected = GreedyFill(matrix).fill(order_by_utility_per_share(utilisation_table))
    return compute_upper_bound(utilisation_table).solution_for(matrix, selected)


def order_by_utility_per_share(utilisation_table: UtilisationTable) -> IndexArray:
    """Return the candidates in descending order of utility per share."""
    return order_by_utility_per_price(
        utilisation_table.matrix, total_shares(utilisation_table, best_columns(utilisation_table))
    )


def order_by_utility_per_price(matrix: ConstraintMatrix, price: Floats) -> IndexArray:
    """Return the candidates in descending order of utility per price; ties by number."""
    ratio = np.divide(matrix.utilities, price, out=np.full(len(price), np.inf), where=price > 0)
    return np.argsort(-ratio, kind="stable")


def total_shares(utilisation_table: UtilisationTable, columns: IndexArray) -> Floats:
    """Return the sum of each candidate's shares, each limit in its column."""
    matrix = utilisation_table.matrix
    prices = np.zeros((len(matrix.membership), matrix.capacity.shape[1]))
    capacity = np.maximum(matrix.capacity[np.arange(len(columns)), columns], 0.5)
    np.add.at(prices, (matrix.limit_rows, columns), 1 / capacity)
    return utilisation_table.total_prices(prices)


def best_columns(utilisation_table: UtilisationTable) -> IndexArray:
    """Return, per limit, the column in which the remaining budget holds the most utility."""
    matrix, (table_count, size, width) = utilisation_table.matrix, utilisation_table.costs.shape
    if not len(matrix.capacity):
        return np.empty(0, np.intp)
    utilities = np.where(matrix.fits_alone, matrix.utilities, 0.0)
    prices = np.stack(
        [_sample_prices(utilities, utilisation_table.costs[:, :, n]) for n in range(width)]
    )
    surplus = utilities[:, None, None] - utilisation_table.costs[:, :, :, None] * prices
    sums = utilisation_table.sum_over_rows(np.maximum(surplus, 0).reshape(table_count, size, -1))
    sums = sums.reshape(-1, width, _TRIED_PRICES)
    values = (sums[matrix.limit_rows] + matrix.capacity[:, :, None] * prices).min(axis=2)
    best: IndexArray = np.where(matrix.capacity >= 0, values, -1.0).argmax(axis=1)
    return best


def _sample_prices(utilities: Floats, costs: Floats) -> Floats:
    """Return prices from the lowest to the highest utility per cost, evenly spaced by rank."""
    ratio = np.divide(utilities, costs, out=np.zeros(costs.shape), where=costs > 0)
    ranked = np.sort(ratio, axis=None)
    return ranked[np.linspace(0, ranked.size - 1, _TRIED_PRICES).astype(np.intp)]
