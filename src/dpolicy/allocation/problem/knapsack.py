"""Sparse multidimensional knapsack problem of an allocation round, and its solution.

A constraint row is a set of blocks of one rule that the same candidates touch. The selected
candidates of a row must fit into every vector of remaining budget of that row: at one certificate
at least, or at all certificates that the rule names. A row keeps several vectors because its blocks
may be satisfied at different certificates; their elementwise minimum would be too strict. A row in
which all candidates fit together does not constrain the selection and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintRow:
    """Candidates that compete for blocks of a rule, with costs and remaining budget in quanta.

    Candidates are sorted by number. `table` (kinds × columns) holds each distinct cost once;
    `remaining` is vectors × columns. The columns are certificates; the last column is the δ-side,
    which must always fit. A certificate that cannot be used has −1 remaining; one without a limit
    has INFINITE. `block` is one of the blocks, and `remaining_share` is the share of the whole
    budget that remains there, at the certificate with the largest share.
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
        """Return the costs, candidates × columns."""
        return self.table.take(self.cost_kinds, axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class AllocationProblem:
    """Candidates by number, with their utilities and the constraint rows.

    `fits_alone` is False for a candidate that a rule refuses even if no other candidate is
    selected. `opportunity_costs` is None if there are no prices of earlier rounds.
    """

    ids: tuple[str, ...]
    utilities: NDArray[np.float64]
    rows: tuple[ConstraintRow, ...]
    fits_alone: NDArray[np.bool_]
    opportunity_costs: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Selected candidates, an upper bound on the utility of any selection, and the dual prices.

    `prices` holds, per row, the approximate utility gained if its remaining budget were doubled. It
    is empty for strategies that compute no prices.
    """

    selected: NDArray[np.bool_]
    bound: float
    prices: NDArray[np.float64]

    def utility(self, problem: AllocationProblem) -> float:
        """Return the total utility of the selected candidates."""
        return float(problem.utilities[self.selected].sum())

    def gap(self, problem: AllocationProblem) -> float:
        """Return the largest possible distance to the optimum, as a share of the bound."""
        return 1 - self.utility(problem) / self.bound if self.bound > 0 else 0.0
