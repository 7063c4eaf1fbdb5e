"""First come, first served: each candidate is taken if it still fits."""

from __future__ import annotations

import numpy as np

from dpolicy.allocation.bound import bound_of
from dpolicy.allocation.feasible import Filling
from dpolicy.allocation.loads import Scale
from dpolicy.allocation.problem import Allocation, Problem
from dpolicy.allocation.table import table_of


def first_come(problem: Problem) -> Allocation:
    """The candidates by number, as long as they fit."""
    table = table_of(problem)
    chosen = Filling(table).fill(np.arange(len(table.open)))
    return bound_of(Scale(table)).with_choice(table, chosen)
