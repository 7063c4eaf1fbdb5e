"""Strategy `price`: dual prices of a linear programme, and a small integer programme.

Each limit is measured in one column: the one that the last solution uses least. The linear
relaxation in these columns prices every limit. A candidate whose utility clearly differs from its
price is decided by the price; the others go to the solver as a small integer programme. The greedy
fill takes the proposed candidates as far as they fit, then the others. The columns of the next pass
come from the best solution so far, which is feasible in them. The first solution is that of
`efficient`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.problem.knapsack import AllocationProblem, Solution
from dpolicy.allocation.solving.constraint_matrix import (
    ConstraintMatrix,
    IndexArray,
    build_constraint_matrix,
)
from dpolicy.allocation.solving.greedy_fill import GreedyFill, SelectionMask
from dpolicy.allocation.solving.highs import LinearModel
from dpolicy.allocation.solving.upper_bound import (
    FractionalSolution,
    TightenedSolution,
    UpperBound,
    compute_upper_bound,
    solve_relaxation,
    tighten_with_cuts,
)
from dpolicy.allocation.solving.utilisation import Floats, UtilisationTable, utilisation_shares
from dpolicy.allocation.strategies.efficient import (
    order_by_utility_per_price,
    order_by_utility_per_share,
)

_PASSES = 2
#: Weight of the opportunity cost against the utility.
_OPPORTUNITY_WEIGHT = 0.5
#: Candidates of the integer programme, and its limits on nodes and gap.
_MAX_UNDECIDED, _NODES, _GAP = 80, 20, 2e-3
#: The larger, the more candidates of high utility are undecided.
_UTILITY_EXPONENT = 0.75
#: A value of x within this distance of 0 or 1 counts as integral.
_INTEGRAL = 1e-6
#: Number of times that the integer programme is solved; violated limits are added between.
_REPAIRS = 2


def price(problem: AllocationProblem) -> Solution:
    """Select the best candidates; subtract weighted opportunity costs from the utilities."""
    matrix = build_constraint_matrix(problem)
    if problem.opportunity_costs is None or not problem.opportunity_costs.any():
        selected, bound = solve_by_prices(UtilisationTable(matrix), GreedyFill(matrix))
        return bound.solution_for(matrix, selected)
    bound = compute_upper_bound(UtilisationTable(matrix))
    net = matrix.utilities - _OPPORTUNITY_WEIGHT * problem.opportunity_costs
    net_matrix = replace(
        matrix, utilities=np.maximum(net, 0), fits_alone=matrix.fits_alone & (net > 0)
    )
    selected, _ = solve_by_prices(UtilisationTable(net_matrix), GreedyFill(net_matrix))
    return bound.solution_for(matrix, selected)


def solve_by_prices(
    utilisation_table: UtilisationTable, greedy: GreedyFill
) -> tuple[SelectionMask, UpperBound]:
    """Return the best selection of all passes, and the upper bound.

    The selection of `efficient` is the first one.
    """
    matrix, bound = utilisation_table.matrix, compute_upper_bound(utilisation_table)
    selected = greedy.fill(order_by_utility_per_share(utilisation_table))
    if not len(matrix.capacity):
        return selected, bound
    x, limits = bound.relaxation.x, bound.relaxation.limits[bound.relaxation.prices > 0]
    columns = np.full(len(matrix.capacity), -1)
    for _ in range(_PASSES):
        previous, columns = columns, utilisation_table.utilisation(x).argmin(axis=1)
        if (previous == columns).all():
            break
        relaxation = solve_relaxation(utilisation_table, columns, limits)
        filled = greedy.fill(_fill_order(matrix, relaxation, greedy, columns))
        if total_utility(matrix, filled) > total_utility(matrix, selected):
            selected = filled
        x, limits = selected.astype(np.float64), relaxation.limits[relaxation.prices > 0]
    return selected, bound


def total_utility(matrix: ConstraintMatrix, selected: SelectionMask) -> float:
    """Return the total utility of a selection."""
    return float(matrix.utilities[selected].sum())


def _fill_order(
    matrix: ConstraintMatrix,
    relaxation: FractionalSolution,
    greedy: GreedyFill,
    columns: IndexArray,
) -> IndexArray:
    """Return the order of the greedy fill: a good integer solution first, then the others."""
    tightened, shares = tighten_with_cuts(matrix, relaxation), relaxation.shares
    undecided = _find_undecided(matrix, relaxation, tightened)
    settled = (tightened.x > 0.5) & matrix.fits_alone
    settled[undecided] = False
    for _ in range(_REPAIRS):
        selected, spent = settled.copy(), shares[:, settled].sum(axis=1)
        selected[undecided] = _solve_undecided(
            matrix.utilities[undecided], shares[:, undecided], spent
        )
        violated = greedy.find_violated_limits(selected)
        if not len(violated):
            break
        added = np.minimum(utilisation_shares(matrix, violated, columns[violated]), 2.0)
        shares = np.concatenate([shares, added])
    order = order_by_utility_per_price(matrix, np.maximum(tightened.candidate_prices, 0))
    return np.concatenate([order[selected[order]], order[~selected[order]]])


def _find_undecided(
    matrix: ConstraintMatrix, relaxation: FractionalSolution, tightened: TightenedSolution
) -> IndexArray:
    """Return fractional candidates, then those whose utility is nearest to their price.

    The distance is divided by a power of the utility: candidates of low utility matter little, and
    the greedy fill decides them well enough.
    """
    size = np.maximum(np.maximum(matrix.utilities, tightened.candidate_prices), _INTEGRAL)
    distance = np.abs(matrix.utilities - tightened.candidate_prices) / size**_UTILITY_EXPONENT
    distance[(tightened.x > _INTEGRAL) & (tightened.x < 1 - _INTEGRAL)] = -1
    distance[relaxation.excluded | ~matrix.fits_alone] = np.inf
    nearest = np.argsort(distance, kind="stable")[:_MAX_UNDECIDED]
    return np.sort(nearest[np.isfinite(distance[nearest])])


def _solve_undecided(utilities: Floats, shares: Floats, spent: Floats) -> NDArray[np.bool_]:
    """Select the best undecided candidates within the share that `spent` leaves of each limit."""
    remaining = np.maximum(1 - spent, 0)
    tight = shares.sum(axis=1) > remaining
    model = LinearModel(utilities, np.ones(len(utilities), dtype=np.bool_))
    model.add_constraints(shares[tight], remaining[tight])
    selected: NDArray[np.bool_] = model.solve_integer(_NODES, _GAP).x > 0.5
    return selected
