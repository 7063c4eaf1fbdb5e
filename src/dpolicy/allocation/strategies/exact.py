"""Strategy `exact`: integer programming, with a proven gap.

The first programme has the inequalities of the upper bound. A limit that a proposed solution
violates is added with one binary switch per column, of which at least one must be on. A violation
that remains is within the tolerance of the solver; then the set of candidates that violates the
limit is excluded explicitly, which does not depend on tolerances. Each programme is a relaxation of
the round, so its bound is a bound of the round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpolicy.allocation.problem.knapsack import AllocationProblem, Solution
from dpolicy.allocation.solving.constraint_matrix import (
    ConstraintMatrix,
    IndexArray,
    build_constraint_matrix,
)
from dpolicy.allocation.solving.greedy_fill import GreedyFill, SelectionMask
from dpolicy.allocation.solving.highs import LinearModel, SolverResult
from dpolicy.allocation.solving.utilisation import Floats, UtilisationTable, utilisation_shares
from dpolicy.allocation.strategies.efficient import order_by_utility_per_price
from dpolicy.allocation.strategies.price import solve_by_prices, total_utility

#: Smallest number of nodes that a programme counts for, and limits added per step.
_MIN_NODES, _LIMITS_PER_STEP = 50, 60
#: Nodes of all programmes × candidates; a node takes longer if there are more candidates.
_NODES_TIMES_CANDIDATES = 50_000
#: Factor that covers the float error of sums and of the solver.
_MARGIN = 1 + 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class _Constraints:
    """Constraints of a programme: inequalities, limits with switches, and excluded sets.

    `shares` (rows × candidates) are the inequalities Σ share · x ≤ 1.
    """

    shares: Floats
    switched: IndexArray
    excluded_sets: tuple[IndexArray, ...]


def exact(problem: AllocationProblem, nodes: int | None = None, gap: float = 0.0) -> Solution:
    """Select the best candidates up to a relative gap.

    `nodes` limits the branch-and-bound nodes of all programmes together; then the best solution so
    far is returned.
    """
    matrix = build_constraint_matrix(problem)
    if nodes is None:
        nodes = _NODES_TIMES_CANDIDATES // max(1, int(matrix.fits_alone.sum()))
    utilisation_table, greedy = UtilisationTable(matrix), GreedyFill(matrix)
    selected, bound = solve_by_prices(utilisation_table, greedy)
    upper = bound.value
    constraints = _Constraints(bound.relaxation.shares, np.empty(0, np.intp), ())
    order = order_by_utility_per_price(matrix, bound.relaxation.candidate_prices())
    while nodes > 0:
        result = _solve(matrix, constraints, nodes, gap)
        proposal = (result.x[: len(matrix.fits_alone)] > 0.5) & matrix.fits_alone
        violated = greedy.find_violated_limits(proposal)
        filled = greedy.fill(np.concatenate([order[proposal[order]], order[~proposal[order]]]))
        if total_utility(matrix, filled) > total_utility(matrix, selected):
            selected = filled
        utility = total_utility(matrix, selected)
        if result.bound * _MARGIN >= utility:  # otherwise the bound of the solver is wrong
            upper = min(upper, result.bound * _MARGIN)
        if not len(violated) or utility >= upper * (1 - gap):
            break
        constraints = _add_violated(matrix, constraints, violated, proposal)
        nodes -= max(result.nodes, _MIN_NODES)
    return Solution(selected, max(upper, total_utility(matrix, selected)), bound.row_prices(matrix))


def _add_violated(
    matrix: ConstraintMatrix,
    constraints: _Constraints,
    violated: IndexArray,
    proposal: SelectionMask,
) -> _Constraints:
    """Add violated limits; if all of them were added before, exclude the violating sets."""
    new = np.setdiff1d(violated, constraints.switched)[:_LIMITS_PER_STEP]
    if len(new):
        shares = np.minimum(utilisation_shares(matrix, new), 2.0)
        return replace(
            constraints,
            shares=np.concatenate([constraints.shares, shares]),
            switched=np.concatenate([constraints.switched, new]),
        )
    sets = tuple(
        _minimal_violating_set(matrix, limit, proposal)
        for limit in violated[:_LIMITS_PER_STEP].tolist()
    )
    return replace(constraints, excluded_sets=(*constraints.excluded_sets, *sets))


def _solve(
    matrix: ConstraintMatrix, constraints: _Constraints, nodes: int, gap: float
) -> SolverResult:
    """Solve the integer programme of the constraints."""
    size, capacity = len(matrix.fits_alone), matrix.capacity
    several = constraints.switched[(capacity[constraints.switched] >= 0).sum(axis=1) > 1]
    limits, columns = np.nonzero(capacity[several] >= 0)
    switches = len(limits)
    available = np.concatenate([matrix.fits_alone, np.ones(switches, dtype=np.bool_)])
    available[:size] &= ~(constraints.shares > 1).any(axis=0)
    model = LinearModel(np.concatenate([matrix.utilities, np.zeros(switches)]), available)
    model.add_constraints(
        np.hstack([constraints.shares, np.zeros((len(constraints.shares), switches))]),
        np.ones(len(constraints.shares)),
    )
    shares = np.minimum(utilisation_shares(matrix, several[limits], columns), 2.0)
    shares[:, ~available[:size]] = 0.0
    totals = np.maximum(shares.sum(axis=1), 1.0)
    model.add_constraints(np.hstack([shares, np.diag(totals - 1)]), totals)
    one_switch_on = np.zeros((len(several), size + switches))
    one_switch_on[limits, size + np.arange(switches)] = -1.0
    model.add_constraints(one_switch_on, -np.ones(len(several)))
    exclusions = np.zeros((len(constraints.excluded_sets), size + switches))
    for exclusion, candidates in zip(exclusions, constraints.excluded_sets, strict=True):
        exclusion[candidates] = 1.0
    model.add_constraints(exclusions, exclusions.sum(axis=1) - 1)
    return model.solve_integer(nodes, gap)


def _minimal_violating_set(
    matrix: ConstraintMatrix, limit: int, proposal: SelectionMask
) -> IndexArray:
    """Return candidates of a proposal that violate a limit; without any one of them they fit."""
    row = matrix.limit_rows[limit]
    costs, capacity = matrix.costs[matrix.row_cost_tables[row]], matrix.capacity[limit].tolist()
    candidates = np.flatnonzero(proposal & matrix.membership[row]).tolist()
    for candidate in list(candidates):
        remaining = [other for other in candidates if other != candidate]
        sums = [sum(column) for column in zip(*costs[remaining].tolist(), strict=True)]
        if remaining and not any(s <= r for s, r in zip(sums, capacity, strict=True)):
            candidates = remaining
    return np.array(candidates, dtype=np.intp)
