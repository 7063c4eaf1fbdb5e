"""A round of candidates as a sparse knapsack of many dimensions, and what a strategy makes of it.

A row is a set of blocks of one rule that the same candidates touch. The chosen candidates of a row
must fit into what is left there, at some certificate or at all that the rule names, for each of the
vectors of what is left: different blocks of a row may rest on different certificates, so their
elementwise minimum would be too strict. A row in which all its candidates fit together is no row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintRow:
    """Blocks of a rule: candidates by rising number, their costs, and what is left, in quanta.

    `table` has each kind of cost once, kinds × columns; `left` is vectors × columns. Columns are
    certificates, and last the δ-side, which always must fit. A certificate that is not offered has
    −1 left; one that does not matter has INFINITE left. `at` is one of the blocks, and `rest` the
    share of the whole budget that is left there, at the certificate with most.
    """

    rule: int
    candidates: NDArray[np.intp]
    cost_kinds: NDArray[np.intp]
    table: NDArray[np.int64]
    remaining: NDArray[np.int64]
    require_all: bool
    block: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    remaining_share: float = 1.0

    @property
    def costs(self) -> NDArray[np.int64]:
        """What each candidate costs, candidates × columns."""
        return self.table.take(self.cost_kinds, axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class AllocationProblem:
    """Candidates by number: their ids and utilities, the contested rows, and who is out.

    `fits_alone` is False for candidates that some rule refuses whatever the others do. `later` is
    what later rounds would pay for what each takes, where prices of earlier rounds tell it.
    """

    ids: tuple[str, ...]
    utilities: NDArray[np.float64]
    rows: tuple[ConstraintRow, ...]
    fits_alone: NDArray[np.bool_]
    opportunity_costs: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """What a strategy chose, the most that any choice could be worth, and the prices of rows.

    `prices` has the worth of as much again as is left of each row, by row; it is empty for
    strategies that know none.
    """

    selected: NDArray[np.bool_]
    bound: float
    prices: NDArray[np.float64]

    def utility(self, problem: AllocationProblem) -> float:
        """What the chosen candidates are worth together."""
        return float(problem.utilities[self.selected].sum())

    def gap(self, problem: AllocationProblem) -> float:
        """How far the choice may be from the best, as a share of the bound."""
        return 1 - self.utility(problem) / self.bound if self.bound > 0 else 0.0
