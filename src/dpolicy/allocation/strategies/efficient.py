"""Utility per share (DPK): who is worth most for what it takes comes first.

Every limit is weighed in one column: the one in which a knapsack of what is left holds most. A
candidate's share is the sum of its shares of all limits, each in that column; who meets no
contested row comes first. The knapsack may be filled in parts: then its value is the least, over
all prices, of what is left at the price and what the candidates are worth above it.
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

#: Prices that are tried for a knapsack.
_PRICES = 12


def efficient(problem: AllocationProblem) -> Solution:
    """The candidates by falling utility per share, as long as they fit."""
    table = build_constraint_matrix(problem)
    scale = UtilisationTable(table)
    chosen = GreedyFill(table).fill(order_by_utility_per_share(scale))
    return compute_upper_bound(scale).solution_for(table, chosen)


def order_by_utility_per_share(scale: UtilisationTable) -> IndexArray:
    """The candidates by falling utility per share."""
    return order_by_utility_per_price(scale.table, total_shares(scale, best_columns(scale)))


def order_by_utility_per_price(table: ConstraintMatrix, price: Floats) -> IndexArray:
    """The candidates by falling utility per price; equals by number."""
    pays = price > 0
    ratio = np.divide(table.utilities, price, out=np.full(len(price), np.inf), where=pays)
    return np.argsort(-ratio, kind="stable")


def total_shares(scale: UtilisationTable, columns: IndexArray) -> Floats:
    """The sum of each candidate's shares, in the columns chosen."""
    table = scale.table
    prices = np.zeros((len(table.membership), table.capacity.shape[1]))
    room = np.maximum(table.capacity[np.arange(len(columns)), columns], 0.5)
    np.add.at(prices, (table.limit_rows, columns), 1 / room)
    return scale.priced_costs(prices)


def best_columns(scale: UtilisationTable) -> IndexArray:
    """By limit, the column in which what is left holds most utility."""
    table, (books, size, width) = scale.table, scale.costs.shape
    if not len(table.capacity):
        return np.empty(0, np.intp)
    utilities = np.where(table.fits_alone, table.utilities, 0.0)
    prices = np.stack([_tried(utilities, scale.costs[:, :, n]) for n in range(width)])
    above = utilities[:, None, None] - scale.costs[:, :, :, None] * prices
    sums = scale.sum_over_rows(np.maximum(above, 0).reshape(books, size, -1)).reshape(
        -1, width, _PRICES
    )
    held = (sums[table.limit_rows] + table.capacity[:, :, None] * prices).min(axis=2)
    best: IndexArray = np.where(table.capacity >= 0, held, -1.0).argmax(axis=1)
    return best


def _tried(utilities: Floats, costs: Floats) -> Floats:
    """Prices from nothing up to the dearest at which somebody still asks, spread evenly by rank."""
    ratio = np.divide(utilities, costs, out=np.zeros(costs.shape), where=costs > 0)
    known = np.sort(ratio, axis=None)
    return known[np.linspace(0, known.size - 1, _PRICES).astype(np.intp)]
