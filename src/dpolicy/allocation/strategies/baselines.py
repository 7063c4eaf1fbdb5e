"""Strategies `first-come` and `fair`: greedy fills that ignore utilities.

`first-come` takes the candidates by number. `fair` is dominant share fairness (DPF): it takes the
candidate with the smallest dominant share first. The dominant share of a candidate is the largest
share that it uses of the remaining budget of any limit, each in the best column for the candidate.
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
from dpolicy.allocation.solving.utilisation import (
    Floats,
    UtilisationTable,
    limit_chunks,
    utilisation_shares,
)


def first_come(problem: AllocationProblem) -> Solution:
    """Take candidates by number and select each that still fits."""
    matrix = build_constraint_matrix(problem)
    return _fill(matrix, np.arange(len(matrix.fits_alone)))


def fair(problem: AllocationProblem) -> Solution:
    """Take candidates by ascending dominant share, ties by number; select each that still fits."""
    matrix = build_constraint_matrix(problem)
    return _fill(matrix, np.argsort(dominant_shares(matrix), kind="stable"))


def _fill(matrix: ConstraintMatrix, order: IndexArray) -> Solution:
    selected = GreedyFill(matrix).fill(order)
    return compute_upper_bound(UtilisationTable(matrix)).solution_for(matrix, selected)


def dominant_shares(matrix: ConstraintMatrix) -> Floats:
    """Return the dominant share of each candidate; 0 if it is in no constraint row."""
    shares = np.zeros(len(matrix.fits_alone))
    for limits in limit_chunks(matrix):
        np.maximum(shares, utilisation_shares(matrix, limits).max(axis=0), out=shares)
    return shares
