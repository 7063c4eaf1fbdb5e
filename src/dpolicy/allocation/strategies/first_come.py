"""First come, first served: each candidate is taken if it still fits."""

from __future__ import annotations

import numpy as np

from dpolicy.allocation.bound import compute_upper_bound
from dpolicy.allocation.feasible import GreedyFill
from dpolicy.allocation.loads import UtilisationTable
from dpolicy.allocation.problem import Solution, AllocationProblem
from dpolicy.allocation.table import build_constraint_matrix


def first_come(problem: AllocationProblem) -> Solution:
    """The candidates by number, as long as they fit."""
    table = build_constraint_matrix(problem)
    chosen = GreedyFill(table).fill(np.arange(len(table.fits_alone)))
    return compute_upper_bound(UtilisationTable(table)).solution_for(table, chosen)
