"""Choosing among a few candidates by trying all subsets: the naive twin of the strategies."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from dpolicy.allocation.problem.knapsack import AllocationProblem, ConstraintRow
from dpolicy.privacy.loss import INFINITE


def fits_row(row: ConstraintRow, chosen: Iterable[int]) -> bool:
    """Whether the chosen candidates of a row fit into each vector of what is left."""
    costs = dict(zip(row.candidates.tolist(), row.costs.tolist(), strict=True))
    inside = [costs[candidate] for candidate in chosen if candidate in costs]
    if not inside:
        return True
    *total, delta = [min(sum(column), INFINITE) for column in zip(*inside, strict=True)]
    for *left, delta_left in row.remaining.tolist():
        within = [amount <= most for amount, most in zip(total, left, strict=True)]
        if delta > delta_left or not (all(within) if row.require_all else any(within)):
            return False
    return True


def fits(problem: AllocationProblem, chosen: Iterable[int]) -> bool:
    """Whether nobody is out and every row holds."""
    who = list(chosen)
    alone = all(problem.fits_alone[candidate] for candidate in who)
    return alone and all(fits_row(row, who) for row in problem.rows)


def best(problem: AllocationProblem) -> float:
    """The most that any subset that fits is worth."""
    numbers = range(len(problem.ids))
    subsets = (some for size in range(len(numbers) + 1) for some in combinations(numbers, size))
    worths: list[float] = problem.utilities.tolist()
    return max(sum(worths[n] for n in some) for some in subsets if fits(problem, some))
