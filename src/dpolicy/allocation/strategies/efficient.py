"""Utility per share (DPK): who is worth most for what it takes comes first.

Every limit is weighed in one column: the one in which a knapsack of what is left holds most. A
candidate's share is the sum of its shares of all limits, each in that column; who meets no
contested row comes first. The knapsack may be filled in parts: then its value is the least, over
all prices, of what is left at the price and what the candidates are worth above it.
"""

from __future__ import annotations

import numpy as np

from dpolicy.allocation.bound import bound_of
from dpolicy.allocation.feasible import Filling
from dpolicy.allocation.loads import Floats, Scale
from dpolicy.allocation.problem import Allocation, Problem
from dpolicy.allocation.table import Ints, Table, table_of

#: Prices that are tried for a knapsack.
_PRICES = 12


def efficient(problem: Problem) -> Allocation:
    """The candidates by falling utility per share, as long as they fit."""
    table = table_of(problem)
    scale = Scale(table)
    chosen = Filling(table).fill(by_share(scale))
    return bound_of(scale).with_choice(table, chosen)


def by_share(scale: Scale) -> Ints:
    """The candidates by falling utility per share."""
    return by_worth(scale.table, total_shares(scale, best_columns(scale)))


def by_worth(table: Table, price: Floats) -> Ints:
    """The candidates by falling utility per price; equals by number."""
    pays = price > 0
    ratio = np.divide(table.utilities, price, out=np.full(len(price), np.inf), where=pays)
    return np.argsort(-ratio, kind="stable")


def total_shares(scale: Scale, columns: Ints) -> Floats:
    """The sum of each candidate's shares, in the columns chosen."""
    table = scale.table
    prices = np.zeros((len(table.inside), table.room.shape[1]))
    room = np.maximum(table.room[np.arange(len(columns)), columns], 0.5)
    np.add.at(prices, (table.limit_rows, columns), 1 / room)
    return scale.paid(prices)


def best_columns(scale: Scale) -> Ints:
    """By limit, the column in which what is left holds most utility."""
    table, (books, size, width) = scale.table, scale.costs.shape
    if not len(table.room):
        return np.empty(0, np.intp)
    utilities = np.where(table.open, table.utilities, 0.0)
    prices = np.stack([_tried(utilities, scale.costs[:, :, n]) for n in range(width)])
    above = utilities[:, None, None] - scale.costs[:, :, :, None] * prices
    sums = scale.sums(np.maximum(above, 0).reshape(books, size, -1)).reshape(-1, width, _PRICES)
    held = (sums[table.limit_rows] + table.room[:, :, None] * prices).min(axis=2)
    best: Ints = np.where(table.room >= 0, held, -1.0).argmax(axis=1)
    return best


def _tried(utilities: Floats, costs: Floats) -> Floats:
    """Prices from nothing up to the dearest at which somebody still asks, spread evenly by rank."""
    ratio = np.divide(utilities, costs, out=np.zeros(costs.shape), where=costs > 0)
    known = np.sort(ratio, axis=None)
    return known[np.linspace(0, known.size - 1, _PRICES).astype(np.intp)]
