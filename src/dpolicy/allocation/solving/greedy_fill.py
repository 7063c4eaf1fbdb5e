"""Candidates in some order → those that fit, one after the other, in exact integers.

A candidate fits if every limit of its rows keeps some column at zero or above. Costs are not
negative, so a set fits exactly if its members fit one after the other, in any order.
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

Chosen = NDArray[np.bool_]

#: Limits that refused lately and are asked first, and the bytes of a word.
_REMEMBERED = 24
#: Sums of amounts stay below this.
_LARGEST_SUM = 2**62
_WORD = 8


def fits_together(problem: AllocationProblem, chosen: Chosen) -> bool:
    """Whether all chosen candidates fit together."""
    return bool(
        (GreedyFill(build_constraint_matrix(problem)).fill(np.flatnonzero(chosen)) == chosen).all()
    )


class GreedyFill:
    """A table made ready for filling it candidate by candidate, as often as needed."""

    def __init__(self, table: ConstraintMatrix) -> None:
        self._open = table.fits_alone
        self._meets = np.ascontiguousarray(table.membership.T).take(table.limit_rows, axis=1)
        self._room = _padded(table.capacity, -1)
        self._costs = _padded(table.costs.reshape(-1, table.costs.shape[2]), 0)
        self._books = table.cost_book_of_row[table.limit_rows] * len(table.fits_alone)
        self._table = table
        beyond = table.capacity.max(axis=0, initial=0) + 1  # all that is more breaks just as well
        self._cut: CostArray = np.minimum(table.costs, beyond)

    def fill(self, order: Iterable[int] | IndexArray) -> Chosen:
        """Which candidates are taken if they come in this order."""
        chosen = np.zeros(len(self._open), dtype=np.bool_)
        room, refused = self._room.copy(), deque[int](maxlen=_REMEMBERED)
        for candidate in np.asarray(order, dtype=np.intp).tolist():
            if self._open[candidate]:
                chosen[candidate] = self._take(candidate, room, refused)
        return chosen

    def violated_limits(self, chosen: Chosen) -> IndexArray:
        """The limits that the chosen candidates break together."""
        who, table = np.flatnonzero(chosen), self._table
        if len(who) * int(self._cut.max(initial=0)) >= _LARGEST_SUM:
            return self._broken_one_by_one(chosen)
        inside = table.membership[:, who].astype(np.int64)
        spent = np.zeros((len(inside), table.capacity.shape[1]), np.int64)
        for book in range(len(self._cut)):
            rows = table.cost_book_of_row == book
            spent[rows] = inside[rows] @ self._cut[book, who]
        kept: Chosen = np.any(spent[table.limit_rows] <= table.capacity, axis=1)
        touched: Chosen = np.any(inside > 0, axis=1)
        return np.flatnonzero(touched[table.limit_rows] & ~kept)

    def _broken_one_by_one(self, chosen: Chosen) -> IndexArray:
        """The same where sums could go beyond 64 bits."""
        room = self._room.copy()
        touched = np.zeros(len(room), dtype=np.bool_)
        for candidate in np.flatnonzero(chosen).tolist():
            limits = self._meets[candidate].nonzero()[0]
            room[limits] = self._after(candidate, room, limits)
            touched[limits] = True
        return np.flatnonzero(touched & ~_kept(room))

    def _take(self, candidate: int, room: CostArray, refused: deque[int]) -> bool:
        """Take a candidate's costs from the room if they fit everywhere.

        Limits that refused lately are asked first: they mostly refuse the next one too.
        """
        meets = self._meets[candidate]
        likely = [limit for limit in refused if meets[limit]]
        if likely and not _kept(self._after(candidate, room, np.array(likely))).all():
            return False
        limits = meets.nonzero()[0]
        after = self._after(candidate, room, limits)
        kept = _kept(after)
        if not kept.all():
            refused.append(int(limits[kept.argmin()]))
            return False
        room[limits] = after
        return True

    def _after(self, candidate: int, room: CostArray, limits: IndexArray) -> CostArray:
        """What a candidate would leave, −1 where nothing; so no sum goes beyond 64 bits."""
        after = room.take(limits, axis=0)
        after -= self._costs.take(self._books.take(limits) + candidate, axis=0)
        return np.maximum(after, -1, out=after)


def _padded(amounts: CostArray, value: int) -> CostArray:
    """As many columns as make whole words of bytes, one byte a column."""
    return np.pad(amounts, ((0, 0), (0, -amounts.shape[1] % _WORD)), constant_values=value)


def _kept(room: CostArray) -> Chosen:
    """Whether some column is left, line by line, eight columns at a time."""
    words = (room >= 0).view(np.uint64)
    kept: Chosen = reduce(np.bitwise_or, words.T) != 0
    return kept
