"""Constraint rows of a problem as flat arrays, on which strategies compute.

A row becomes one or several *limits*. A limit is satisfied if the selected candidates of its row
fit in at least one of the columns that it offers. A row that must fit in every column has one limit
per column, and the δ-side has a separate limit; there only the smallest of several vectors
counts. A *cost table* holds costs by candidate and is shared by rows: a candidate mostly has the
same cost in all rules of the same unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.problem.knapsack import AllocationProblem, ConstraintRow
from dpolicy.privacy.loss import INFINITE

IndexArray = NDArray[np.intp]
CostArray = NDArray[np.int64]

#: Cost tables that a row is compared with, latest first, before it gets a new one.
_TABLES_TRIED = 8
#: Rows that are compared with a cost table at a time.
_ROWS_COMPARED = 32
#: Entry of a cost table that no row has set.
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintMatrix:
    """Membership, costs and limits of all rows; limits are sorted by row.

    `membership` is rows × candidates, `costs` is cost tables × candidates × columns, `capacity` is
    limits × columns, with −1 where a limit does not offer the column. Columns that no limit offers
    are dropped, but at least one column stays.
    """

    utilities: NDArray[np.float64]
    fits_alone: NDArray[np.bool_]
    membership: NDArray[np.bool_]
    row_cost_tables: IndexArray
    costs: CostArray
    capacity: CostArray
    limit_rows: IndexArray


def build_constraint_matrix(problem: AllocationProblem) -> ConstraintMatrix:
    """Convert the rows of a problem to flat arrays."""
    rows, size = problem.rows, len(problem.ids)
    membership = np.zeros((len(rows), size), dtype=np.bool_)
    if not rows:
        none, capacity = np.empty(0, np.intp), np.empty((0, 1), np.int64)
        costs = np.empty((0, size, 1), np.int64)
        return ConstraintMatrix(
            problem.utilities, problem.fits_alone, membership, none, costs, capacity, none
        )
    for members, row in zip(membership, rows, strict=True):
        members[row.candidates] = True
    row_tables, costs = _cost_tables(rows, size)
    has_delta: NDArray[np.bool_] = np.any(membership & (costs[:, :, -1] > 0)[row_tables], axis=1)
    capacity, limit_rows = _limits(rows, has_delta)
    offered: NDArray[np.bool_] = np.any(capacity >= 0, axis=0)
    offered[0] |= not offered.any()
    return ConstraintMatrix(
        problem.utilities,
        problem.fits_alone,
        membership,
        row_tables,
        np.ascontiguousarray(costs[:, :, offered]),
        np.ascontiguousarray(capacity[:, offered]),
        limit_rows,
    )


def _limits(
    rows: tuple[ConstraintRow, ...], has_delta: NDArray[np.bool_]
) -> tuple[CostArray, IndexArray]:
    """Return the capacity and the row of each limit; rows with `has_delta` have δ-side costs."""
    remaining = np.maximum(np.concatenate([row.remaining for row in rows]), -1)
    counts = np.array([len(row.remaining) for row in rows])
    require_all = np.array([row.require_all for row in rows])
    owners = np.repeat(np.arange(len(rows)), counts)
    several = ~require_all[owners] & (remaining[:, :-1] < INFINITE).all(axis=1)
    any_column, any_column_rows = remaining[several], owners[several]
    any_column[:, -1] = -1
    smallest = np.minimum.reduceat(remaining, np.cumsum(counts) - counts)
    matters = (smallest < INFINITE) & require_all[:, None]
    matters[:, -1] = (smallest[:, -1] < 0) | has_delta
    single_rows, columns = np.nonzero(matters)
    single = np.full((len(single_rows), remaining.shape[1]), -1, dtype=np.int64)
    single[np.arange(len(single_rows)), columns] = smallest[single_rows, columns]
    limit_rows = np.concatenate([any_column_rows, single_rows])
    order = np.argsort(limit_rows, kind="stable")
    return np.concatenate([any_column, single])[order], limit_rows[order]


def _cost_tables(rows: tuple[ConstraintRow, ...], size: int) -> tuple[IndexArray, CostArray]:
    """Return the cost table of each row, and the costs in each table; unset entries are 0."""
    tables = [np.full((size, rows[0].table.shape[1]), _UNKNOWN, dtype=np.int64)]
    latest_by_rule: dict[int, int] = {}
    row_tables = np.empty(len(rows), dtype=np.intp)
    likely = 0
    for begin in range(0, len(rows), _ROWS_COMPARED):
        chunk = rows[begin : begin + _ROWS_COMPARED]
        candidates = np.concatenate([row.candidates for row in chunk])
        if _accepts_costs(tables[likely], candidates, np.concatenate([row.costs for row in chunk])):
            row_tables[begin : begin + len(chunk)] = likely
            continue
        for number, row in enumerate(chunk, begin):
            likely = _find_cost_table(row, tables, latest_by_rule.get(row.rule, likely))
            latest_by_rule[row.rule] = row_tables[number] = likely
    return row_tables, np.maximum(np.stack(tables), 0)


def _find_cost_table(row: ConstraintRow, tables: list[CostArray], likely: int) -> int:
    """Return the number of a cost table for a row; append one if none of the latest accepts it."""
    latest = range(len(tables) - 1, -1, -1)[:_TABLES_TRIED]
    number: int
    for number in (likely, *latest):
        if _accepts_costs(tables[number], row.candidates, row.costs):
            return number
    tables.append(np.full_like(tables[0], _UNKNOWN))
    tables[-1][row.candidates] = row.costs
    return len(tables) - 1


def _accepts_costs(table: CostArray, candidates: IndexArray, costs: CostArray) -> bool:
    """Write the costs into the unset entries of a table; return whether it now has all of them."""
    entries = table.take(candidates, axis=0)
    if (entries == costs).all():
        return True
    unset = entries[:, 0] == _UNKNOWN
    table[candidates[unset]] = costs[unset]
    return bool((table.take(candidates, axis=0) == costs).all())
