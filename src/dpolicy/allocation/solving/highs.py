"""Linear and integer programmes, solved by HiGHS. No other module imports HiGHS.

A solution is only a proposal: it satisfies the constraints up to the tolerance of the solver. The
solver uses one thread and limits on nodes, never on time, so every run gives the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.solving.utilisation import Floats
from dpolicy.errors import OperationRejected

_OPTIONS = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
    "mip_abs_gap": 0.0,
    "mip_allow_restart": False,
    "mip_allow_cut_separation_at_nodes": False,
}


#: Largest utility after scaling; the tolerances of the solver are absolute.
_LARGEST_UTILITY = 1000.0


@dataclass(frozen=True, slots=True, eq=False)
class SolverResult:
    """Solution x, an upper bound on the objective, and the dual price of each constraint.

    Only relaxed solutions have `prices`. `nodes` is the number of branch-and-bound nodes of an
    integer solution.
    """

    x: Floats
    bound: float
    prices: Floats
    nodes: int = 0


def is_installed() -> bool:
    """Return whether HiGHS is installed."""
    return find_spec("highspy") is not None


class LinearModel:
    """Maximise Σ utility · x for 0 ≤ x ≤ 1 under a growing set of linear constraints."""

    def __init__(self, utilities: Floats, available: NDArray[np.bool_]) -> None:
        self._highs = _new_solver()
        self._size = len(utilities)
        self._unit = float(utilities.max(initial=0.0)) / _LARGEST_UTILITY or 1.0
        self._highs.addVars(self._size, np.zeros(self._size), available.astype(np.float64))
        self._highs.changeColsCost(
            self._size, np.arange(self._size, dtype=np.int32), -utilities / self._unit
        )

    def add_constraints(self, values: Floats, limits: Floats) -> None:
        """Add the constraints Σ values · x ≤ limit, one per row of `values`."""
        rows, columns = np.nonzero(values)
        starts = np.searchsorted(rows, np.arange(len(values))).astype(np.int32)
        lower, indices = np.full(len(values), -np.inf), columns.astype(np.int32)
        self._highs.addRows(
            len(values), lower, limits, len(indices), starts, indices, values[rows, columns]
        )

    def exclude(self, excluded: NDArray[np.bool_]) -> None:
        """Fix x at 0 for the excluded candidates."""
        indices = np.flatnonzero(excluded).astype(np.int32)
        zeros = np.zeros(len(indices))
        self._highs.changeColsBounds(len(indices), indices, zeros, zeros)

    def solve_relaxed(self) -> SolverResult:
        """Solve the linear relaxation."""
        self._highs.run()
        solution = self._highs.getSolution()
        x, prices = np.array(solution.col_value), -np.array(solution.row_dual)
        value = -self._highs.getInfo().objective_function_value
        return SolverResult(x, value * self._unit, np.maximum(prices, 0) * self._unit)

    def solve_integer(self, nodes: int, gap: float) -> SolverResult:
        """Solve the integer programme, up to a relative gap or a number of nodes."""
        integer = import_module("highspy").HighsVarType.kInteger
        indices = np.arange(self._size, dtype=np.int32)
        self._highs.changeColsIntegrality(self._size, indices, np.full(self._size, integer))
        self._highs.setOptionValue("mip_max_nodes", nodes)
        self._highs.setOptionValue("mip_rel_gap", gap)
        self._highs.run()
        solution, info = self._highs.getSolution(), self._highs.getInfo()
        x = np.array(solution.col_value) if solution.value_valid else np.zeros(self._size)
        bound = -info.mip_dual_bound if self._has_proven_bound() else np.inf
        return SolverResult(x, bound * self._unit, np.empty(0), int(info.mip_node_count))

    def _has_proven_bound(self) -> bool:
        """Return whether the solver stopped with a valid dual bound."""
        status = import_module("highspy").HighsModelStatus
        return self._highs.getModelStatus() in (status.kOptimal, status.kSolutionLimit)


def _new_solver() -> Any:
    if not is_installed():
        raise OperationRejected("this strategy needs HiGHS: pip install 'dpolicy[allocation]'")
    highs = import_module("highspy").Highs()
    for name, value in _OPTIONS.items():
        highs.setOptionValue(name, value)
    return highs
