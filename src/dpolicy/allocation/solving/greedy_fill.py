"""Greedy fill: take candidates in a given order and select each that fits, in exact integers.

A candidate fits if every limit of its rows keeps at least one column at zero or above. Costs are
not negative, so a set fits exactly if its members fit one after the other, in any order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.problem.knapsack import AllocationProblem
from dpolicy.allocation.solving.constraint_matrix import (
    ConstraintMatrix,
    CostArray,
    IndexArray,
    build_constraint_matrix,
)

SelectionMask = NDArray[np.bool_]

#: Number of limits that refused most recently; they are checked first.
_RECENT_LIMITS = 24
#: Upper limit for sums of amounts in 64-bit integers.
_LARGEST_SUM = 2**62
#: Bytes per machine word.
_WORD = 8


def fits_together(problem: AllocationProblem, selected: SelectionMask) -> bool:
    """Return whether all selected candidates fit together."""
    filled = GreedyFill(build_constraint_matrix(problem)).fill(np.flatnonzero(selected))
    return bool((filled == selected).all())


class GreedyFill:
    """Constraint matrix prepared for repeated greedy fills."""

    def __init__(self, matrix: ConstraintMatrix) -> None:
        self._fits_alone = matrix.fits_alone
        self._limit_membership = np.ascontiguousarray(matrix.membership.T).take(
            matrix.limit_rows, axis=1
        )
        self._capacity = _pad_to_words(matrix.capacity, -1)
        self._costs = _pad_to_words(matrix.costs.reshape(-1, matrix.costs.shape[2]), 0)
        self._cost_offsets = matrix.row_cost_tables[matrix.limit_rows] * len(matrix.fits_alone)
        self._matrix = matrix
        # Every cost above all capacities violates its limit, so costs can be clipped there.
        above_all = matrix.capacity.max(axis=0, initial=0) + 1
        self._clipped_costs: CostArray = np.minimum(matrix.costs, above_all)

    def fill(self, order: Iterable[int] | IndexArray) -> SelectionMask:
        """Take candidates in the given order and select each that still fits."""
        selected = np.zeros(len(self._fits_alone), dtype=np.bool_)
        capacity, refused = self._capacity.copy(), deque[int](maxlen=_RECENT_LIMITS)
        for candidate in np.asarray(order, dtype=np.intp).tolist():
            if self._fits_alone[candidate]:
                selected[candidate] = self._try_add(candidate, capacity, refused)
        return selected

    def find_violated_limits(self, selected: SelectionMask) -> IndexArray:
        """Return the limits that the selected candidates violate together."""
        candidates, matrix = np.flatnonzero(selected), self._matrix
        if len(candidates) * int(self._clipped_costs.max(initial=0)) >= _LARGEST_SUM:
            return self._find_violated_one_by_one(selected)
        inside = matrix.membership[:, candidates].astype(np.int64)
        spent = np.zeros((len(inside), matrix.capacity.shape[1]), np.int64)
        for number in range(len(self._clipped_costs)):
            rows = matrix.row_cost_tables == number
            spent[rows] = inside[rows] @ self._clipped_costs[number, candidates]
        satisfied: SelectionMask = np.any(spent[matrix.limit_rows] <= matrix.capacity, axis=1)
        touched: SelectionMask = np.any(inside > 0, axis=1)
        return np.flatnonzero(touched[matrix.limit_rows] & ~satisfied)

    def _find_violated_one_by_one(self, selected: SelectionMask) -> IndexArray:
        """Return the violated limits without sums that could exceed 64 bits."""
        capacity = self._capacity.copy()
        touched = np.zeros(len(capacity), dtype=np.bool_)
        for candidate in np.flatnonzero(selected).tolist():
            limits = self._limit_membership[candidate].nonzero()[0]
            capacity[limits] = self._capacity_after(candidate, capacity, limits)
            touched[limits] = True
        return np.flatnonzero(touched & ~_have_capacity(capacity))

    def _try_add(self, candidate: int, capacity: CostArray, refused: deque[int]) -> bool:
        """Subtract a candidate's costs from the capacity if they fit in every limit.

        Limits that refused recently are checked first: they mostly refuse the next candidate too.
        """
        in_limit = self._limit_membership[candidate]
        likely = [limit for limit in refused if in_limit[limit]]
        if likely:
            after = self._capacity_after(candidate, capacity, np.array(likely))
            if not _have_capacity(after).all():
                return False
        limits = in_limit.nonzero()[0]
        after = self._capacity_after(candidate, capacity, limits)
        satisfied = _have_capacity(after)
        if not satisfied.all():
            refused.append(int(limits[satisfied.argmin()]))
            return False
        capacity[limits] = after
        return True

    def _capacity_after(self, candidate: int, capacity: CostArray, limits: IndexArray) -> CostArray:
        """Return the capacity after a candidate, at least −1, so that no sum exceeds 64 bits."""
        after = capacity.take(limits, axis=0)
        after -= self._costs.take(self._cost_offsets.take(limits) + candidate, axis=0)
        return np.maximum(after, -1, out=after)


def _pad_to_words(amounts: CostArray, value: int) -> CostArray:
    """Pad the columns so that one byte per column fills whole machine words."""
    return np.pad(amounts, ((0, 0), (0, -amounts.shape[1] % _WORD)), constant_values=value)


def _have_capacity(capacity: CostArray) -> SelectionMask:
    """Return for each limit whether a column is at zero or above; compares 8 columns at a time."""
    words = (capacity >= 0).view(np.uint64)
    satisfied: SelectionMask = reduce(np.bitwise_or, words.T) != 0
    return satisfied
