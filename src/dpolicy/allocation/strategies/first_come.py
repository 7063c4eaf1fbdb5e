"""First come, first served: each candidate is taken if it still fits."""

from __future__ import annotations

import numpy as np

from dpolicy.allocation.problem.knapsack import AllocationProblem, Solution
from dpolicy.allocation.solving.constraint_matrix import build_constraint_matrix
from dpolicy.allocation.solving.greedy_fill import GreedyFill
from dpolicy.allocation.solving.upper_bound import compute_upper_bound
from dpolicy.allocation.solving.utilisation import UtilisationTable


def first_come(problem: AllocationProblem) -> Solution:
    """The candidates by number, as long as they fit."""
    table = build_constraint_matrix(problem)
    chosen = GreedyFill(table).fill(np.arange(len(table.fits_alone)))
    return compute_upper_bound(UtilisationTable(table)).solution_for(table, chosen)
