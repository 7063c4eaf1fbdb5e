"""Naive twin of the strategies: selection by trying all subsets."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from dpolicy.allocation.problem.knapsack import AllocationProblem, ConstraintRow
from dpolicy.privacy.loss import INFINITE


def fits_row(row: ConstraintRow, chosen: Iterable[int]) -> bool:
    """Return whether the selected candidates of a row fit into each remaining vector."""
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
    """Return whether every selected candidate fits alone and every row holds."""
    who = list(chosen)
    alone = all(problem.fits_alone[candidate] for candidate in who)
    return alone and all(fits_row(row, who) for row in problem.rows)


def best(problem: AllocationProblem) -> float:
    """Return the largest utility of a subset that fits."""
    numbers = range(len(problem.ids))
    subsets = (some for size in range(len(numbers) + 1) for some in combinations(numbers, size))
    worths: list[float] = problem.utilities.tolist()
    return max(sum(worths[n] for n in some) for some in subsets if fits(problem, some))
