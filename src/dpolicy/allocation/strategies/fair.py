"""Dominant share fairness (DPF): who needs least of what it needs most comes first.

A candidate's dominant share is the largest share it takes of what is left in any row, each in the
column that suits it best. Utilities do not matter; equals come by number.
"""

from __future__ import annotations

import numpy as np

from dpolicy.allocation.bound import bound_of
from dpolicy.allocation.feasible import Filling
from dpolicy.allocation.loads import Floats, Scale, chunks, shares
from dpolicy.allocation.problem import Allocation, Problem
from dpolicy.allocation.table import Table, table_of


def fair(problem: Problem) -> Allocation:
    """The candidates by rising dominant share, as long as they fit."""
    table = table_of(problem)
    chosen = Filling(table).fill(np.argsort(dominant_shares(table), kind="stable"))
    return bound_of(Scale(table)).with_choice(table, chosen)


def dominant_shares(table: Table) -> Floats:
    """The largest share of each candidate; nothing for who is in no contested row."""
    found = np.zeros(len(table.open))
    for limits in chunks(table):
        np.maximum(found, shares(table, limits).max(axis=0), out=found)
    return found
