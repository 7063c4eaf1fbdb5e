"""Linear limits → the best choice in parts or in whole, by HiGHS. The only module that knows it.

What comes back proposes: it holds up to the solver's tolerance. One thread and limits on nodes,
never on time, so that the same question has the same answer on every run.
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


#: What the most valuable is worth to the solver, whose tolerances are absolute.
_LARGEST = 1000.0


@dataclass(frozen=True, slots=True, eq=False)
class SolverResult:
    """A choice, the worth that none exceeds, and the price of each line (of choices in parts).

    `nodes` is the work that a choice in whole took.
    """

    x: Floats
    bound: float
    prices: Floats
    nodes: int = 0


def is_installed() -> bool:
    """Whether there is a solver."""
    return find_spec("highspy") is not None


class LinearModel:
    """A growing set of lines over things that are worth something, each taken at most once."""

    def __init__(self, worths: Floats, open_: NDArray[np.bool_]) -> None:
        self._highs = _highs()
        self._size = len(worths)
        self._unit = float(worths.max(initial=0.0)) / _LARGEST or 1.0
        self._highs.addVars(self._size, np.zeros(self._size), open_.astype(np.float64))
        self._highs.changeColsCost(
            self._size, np.arange(self._size, dtype=np.int32), -worths / self._unit
        )

    def add_constraints(self, values: Floats, most: Floats) -> None:
        """Ask for Σ values · x ≤ most, line by line."""
        lines, members = np.nonzero(values)
        first = np.searchsorted(lines, np.arange(len(values))).astype(np.int32)
        below, who = np.full(len(values), -np.inf), members.astype(np.int32)
        self._highs.addRows(len(values), below, most, len(who), first, who, values[lines, members])

    def exclude(self, out: NDArray[np.bool_]) -> None:
        """Take nothing of these."""
        who = np.flatnonzero(out).astype(np.int32)
        self._highs.changeColsBounds(len(who), who, np.zeros(len(who)), np.zeros(len(who)))

    def solve_relaxed(self) -> SolverResult:
        """The best choice in parts."""
        self._highs.run()
        solution = self._highs.getSolution()
        x, prices = np.array(solution.col_value), -np.array(solution.row_dual)
        value = -self._highs.getInfo().objective_function_value
        return SolverResult(x, value * self._unit, np.maximum(prices, 0) * self._unit)

    def solve_integer(self, nodes: int, gap: float) -> SolverResult:
        """The best choice in whole numbers, as far as so many nodes lead."""
        whole = import_module("highspy").HighsVarType.kInteger
        everything = np.arange(self._size, dtype=np.int32)
        self._highs.changeColsIntegrality(self._size, everything, np.full(self._size, whole))
        self._highs.setOptionValue("mip_max_nodes", nodes)
        self._highs.setOptionValue("mip_rel_gap", gap)
        self._highs.run()
        solution, info = self._highs.getSolution(), self._highs.getInfo()
        x = np.array(solution.col_value) if solution.value_valid else np.zeros(self._size)
        bound = -info.mip_dual_bound if self._ended_well() else np.inf
        return SolverResult(x, bound * self._unit, np.empty(0), int(info.mip_node_count))

    def _ended_well(self) -> bool:
        """Whether the solver came to an end that proves something."""
        ends = import_module("highspy").HighsModelStatus
        return self._highs.getModelStatus() in (ends.kOptimal, ends.kSolutionLimit)


def _highs() -> Any:
    if not is_installed():
        raise OperationRejected("this strategy needs a solver: pip install 'dpolicy[allocation]'")
    highs = import_module("highspy").Highs()
    for name, value in _OPTIONS.items():
        highs.setOptionValue(name, value)
    return highs
