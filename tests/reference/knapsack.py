"""Naive twin of the strategies: try all subsets of the candidates."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from dpolicy.allocation.problem.knapsack import AllocationProblem, ConstraintRow
from dpolicy.privacy.loss import INFINITE


def fits_row(row: ConstraintRow, selected: Iterable[int]) -> bool:
    """Return whether the selected candidates of a row fit into each remaining vector."""
    costs = dict(zip(row.candidates.tolist(), row.costs.tolist(), strict=True))
    inside = [costs[candidate] for candidate in selected if candidate in costs]
    if not inside:
        return True
    *total, delta = [min(sum(column), INFINITE) for column in zip(*inside, strict=True)]
    for *limits, delta_limit in row.remaining.tolist():
        within = [amount <= limit for amount, limit in zip(total, limits, strict=True)]
        if delta > delta_limit or not (all(within) if row.require_all else any(within)):
            return False
    return True


def fits(problem: AllocationProblem, selected: Iterable[int]) -> bool:
    """Return whether every selected candidate fits alone and all of them fit into every row."""
    candidates = list(selected)
    alone = all(problem.fits_alone[candidate] for candidate in candidates)
    return alone and all(fits_row(row, candidates) for row in problem.rows)


def best(problem: AllocationProblem) -> float:
    """Return the largest utility of a subset that fits."""
    numbers = range(len(problem.ids))
    subsets = (subset for size in range(len(numbers) + 1) for subset in combinations(numbers, size))
    utilities: list[float] = problem.utilities.tolist()
    return max(sum(utilities[n] for n in subset) for subset in subsets if fits(problem, subset))
