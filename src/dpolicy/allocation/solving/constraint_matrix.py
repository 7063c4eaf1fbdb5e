"""A problem's rows → one flat table that strategies read at once.

A row becomes *limits*: each says that the chosen candidates of its row fit at some of the columns
that it offers. A row that must fit in every column has a limit a column, and so has the δ-side; of
several vectors only the least counts there. A *book* has the costs by candidate that some rows
share: a candidate mostly costs the same wherever rules of the same unit meet it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.problem.knapsack import AllocationProblem, ConstraintRow
from dpolicy.privacy.loss import INFINITE

IndexArray = NDArray[np.intp]
CostArray = NDArray[np.int64]

#: Books that a row is compared with before it gets one of its own, the latest first.
_BOOKS_TRIED = 8
#: Rows that are compared with a book at once.
_AT_ONCE = 32
#: A cost that no row has told yet.
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintMatrix:
    """Who is in which row, what it costs there, and the limits, by rising row.

    `inside` is rows × candidates, `costs` books × candidates × columns, and `room` limits × columns
    with −1 where a limit offers nothing. Columns that no limit offers are gone, but for one.
    """

    utilities: NDArray[np.float64]
    fits_alone: NDArray[np.bool_]
    membership: NDArray[np.bool_]
    cost_book_of_row: IndexArray
    costs: CostArray
    capacity: CostArray
    limit_rows: IndexArray


def build_constraint_matrix(problem: AllocationProblem) -> ConstraintMatrix:
    """The rows of a problem, laid out flat."""
    rows, size = problem.rows, len(problem.ids)
    inside = np.zeros((len(rows), size), dtype=np.bool_)
    if not rows:
        none, room = np.empty(0, np.intp), np.empty((0, 1), np.int64)
        costs = np.empty((0, size, 1), np.int64)
        return ConstraintMatrix(
            problem.utilities, problem.fits_alone, inside, none, costs, room, none
        )
    for line, row in zip(inside, rows, strict=True):
        line[row.candidates] = True
    books, costs = _books(rows, size)
    leaking: NDArray[np.bool_] = np.any(inside & (costs[:, :, -1] > 0)[books], axis=1)
    room, limit_rows = _limits(rows, leaking)
    offered: NDArray[np.bool_] = np.any(room >= 0, axis=0)
    offered[0] |= not offered.any()
    costs, room = np.ascontiguousarray(costs[:, :, offered]), np.ascontiguousarray(room[:, offered])
    return ConstraintMatrix(
        problem.utilities, problem.fits_alone, inside, books, costs, room, limit_rows
    )


def _limits(
    rows: tuple[ConstraintRow, ...], leaking: NDArray[np.bool_]
) -> tuple[CostArray, IndexArray]:
    """What the rows ask for, a limit a line, and the row of each; `leaking` rows have a δ-side."""
    left = np.maximum(np.concatenate([row.remaining for row in rows]), -1)
    counts = np.array([len(row.remaining) for row in rows])
    every = np.array([row.require_all for row in rows])
    owners = np.repeat(np.arange(len(rows)), counts)
    several = ~every[owners] & (left[:, :-1] < INFINITE).all(axis=1)
    some, some_rows = left[several], owners[several]
    some[:, -1] = -1
    least = np.minimum.reduceat(left, np.cumsum(counts) - counts)
    matters = (least < INFINITE) & every[:, None]
    matters[:, -1] = (least[:, -1] < 0) | leaking
    lines, columns = np.nonzero(matters)
    single = np.full((len(lines), left.shape[1]), -1, dtype=np.int64)
    single[np.arange(len(lines)), columns] = least[lines, columns]
    limit_rows = np.concatenate([some_rows, lines])
    order = np.argsort(limit_rows, kind="stable")
    return np.concatenate([some, single])[order], limit_rows[order]


def _books(rows: tuple[ConstraintRow, ...], size: int) -> tuple[IndexArray, CostArray]:
    """The book of each row, and the costs in each book; nothing where no row tells any."""
    books = [np.full((size, rows[0].table.shape[1]), _UNKNOWN, dtype=np.int64)]
    usual: dict[int, int] = {}
    found = np.empty(len(rows), dtype=np.intp)
    likely = 0
    for begin in range(0, len(rows), _AT_ONCE):
        some = rows[begin : begin + _AT_ONCE]
        who = np.concatenate([row.candidates for row in some])
        if _agrees(books[likely], who, np.concatenate([row.costs for row in some])):
            found[begin : begin + len(some)] = likely
            continue
        for number, row in enumerate(some, begin):
            likely = usual[row.rule] = _book_for(row, books, usual.get(row.rule, likely))
            found[number] = likely
    return found, np.maximum(np.stack(books), 0)


def _book_for(row: ConstraintRow, books: list[CostArray], likely: int) -> int:
    """The number of a book with the costs of a row, a new one if none of the latest has them."""
    latest = range(len(books) - 1, -1, -1)[:_BOOKS_TRIED]
    number: int
    for number in (likely, *latest):
        if _agrees(books[number], row.candidates, row.costs):
            return number
    books.append(np.full_like(books[0], _UNKNOWN))
    books[-1][row.candidates] = row.costs
    return len(books) - 1


def _agrees(book: CostArray, who: IndexArray, costs: CostArray) -> bool:
    """Whether a book has these costs, once those that it did not know are written into it."""
    known = book.take(who, axis=0)
    if (known == costs).all():
        return True
    new = known[:, 0] == _UNKNOWN
    book[who[new]] = costs[new]
    return bool((book.take(who, axis=0) == costs).all())
