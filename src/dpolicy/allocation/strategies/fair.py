"""Dominant share fairness (DPF): who needs least of what it needs most comes first.

A candidate's dominant share is the largest share it takes of what is left in any row, each in the
column that suits it best. Utilities do not matter; equals come by number.
"""

from __future__ import annotations

import numpy as np

from dpolicy.allocation.problem.knapsack import AllocationProblem, Solution
from dpolicy.allocation.solving.constraint_matrix import ConstraintMatrix, build_constraint_matrix
from dpolicy.allocation.solving.greedy_fill import GreedyFill
from dpolicy.allocation.solving.upper_bound import compute_upper_bound
from dpolicy.allocation.solving.utilisation import (
    Floats,
    UtilisationTable,
    limit_chunks,
    utilisation_shares,
)


def fair(problem: AllocationProblem) -> Solution:
    """The candidates by rising dominant share, as long as they fit."""
    table = build_constraint_matrix(problem)
    chosen = GreedyFill(table).fill(np.argsort(dominant_shares(table), kind="stable"))
    return compute_upper_bound(UtilisationTable(table)).solution_for(table, chosen)


def dominant_shares(table: ConstraintMatrix) -> Floats:
    """The largest share of each candidate; nothing for who is in no contested row."""
    found = np.zeros(len(table.fits_alone))
    for limits in limit_chunks(table):
        np.maximum(found, utilisation_shares(table, limits).max(axis=0), out=found)
    return found
