"""Prices by linear programme, and whole numbers where they leave a choice.

Each limit is held in one column, the one that the last choice fills least. There the best choice
in parts prices every limit. Who is clearly worth its price, or not, is settled; the others are put
to the solver as a small programme in whole numbers. What it proposes is taken as far as it fits,
then what else fits. The columns are chosen again from the best choice so far, which fits in them;
the first to beat is that of `efficient`.
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
from dpolicy.allocation.solving.greedy_fill import Chosen, GreedyFill
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
#: The part of what later rounds would pay that counts now.
_PATIENCE = 0.5
#: Candidates that a programme in whole numbers chooses from, and its limits.
_UNDECIDED, _NODES, _GAP = 80, 20, 2e-3
#: The larger, the sooner those that are worth much are undecided.
_POWER = 0.75
#: In parts by less is whole.
_CLEAR = 1e-6
#: Times that a proposal which breaks limits is asked for again with them.
_AGAIN = 2


def price(problem: AllocationProblem) -> Solution:
    """The best of some passes of pricing, choosing in whole, and filling."""
    table = build_constraint_matrix(problem)
    if problem.opportunity_costs is None or not problem.opportunity_costs.any():
        chosen, bound = solve_by_prices(UtilisationTable(table), GreedyFill(table))
        return bound.solution_for(table, chosen)
    bound = compute_upper_bound(UtilisationTable(table))
    net = table.utilities - _PATIENCE * problem.opportunity_costs
    patient = replace(table, utilities=np.maximum(net, 0), fits_alone=table.fits_alone & (net > 0))
    chosen, _ = solve_by_prices(UtilisationTable(patient), GreedyFill(patient))
    return bound.solution_for(table, chosen)


def solve_by_prices(scale: UtilisationTable, filling: GreedyFill) -> tuple[Chosen, UpperBound]:
    """The best choice of some passes, the first by utility per share; and the bound they priced."""
    table, bound = scale.table, compute_upper_bound(scale)
    chosen = filling.fill(order_by_utility_per_share(scale))
    if not len(table.capacity):
        return chosen, bound
    x, limits = bound.parts.x, bound.parts.limits[bound.parts.prices > 0]
    columns = np.full(len(table.capacity), -1)
    for _ in range(_PASSES):
        before, columns = columns, scale.utilisation(x).argmin(axis=1)
        if (before == columns).all():
            break
        parts = solve_relaxation(scale, columns, limits)
        found = filling.fill(_refined(table, parts, filling, columns))
        if total_utility(table, found) > total_utility(table, chosen):
            chosen = found
        x, limits = chosen.astype(np.float64), parts.limits[parts.prices > 0]
    return chosen, bound


def total_utility(table: ConstraintMatrix, chosen: Chosen) -> float:
    """What a choice is worth."""
    return float(table.utilities[chosen].sum())


def _refined(
    table: ConstraintMatrix, parts: FractionalSolution, filling: GreedyFill, columns: IndexArray
) -> IndexArray:
    """The candidates in the order to fill: those of a good whole choice, then the others."""
    sharp, lines = tighten_with_cuts(table, parts), parts.lines
    undecided = _undecided(table, parts, sharp)
    settled = (sharp.x > 0.5) & table.fits_alone
    settled[undecided] = False
    for _ in range(_AGAIN):
        chosen, spent = settled.copy(), lines[:, settled].sum(axis=1)
        chosen[undecided] = _whole(table.utilities[undecided], lines[:, undecided], spent)
        broken = filling.violated_limits(chosen)
        if not len(broken):
            break
        more = np.minimum(utilisation_shares(table, broken, columns[broken]), 2.0)
        lines = np.concatenate([lines, more])
    order = order_by_utility_per_price(table, np.maximum(sharp.paid, 0))
    return np.concatenate([order[chosen[order]], order[~chosen[order]]])


def _undecided(
    table: ConstraintMatrix, parts: FractionalSolution, sharp: TightenedSolution
) -> IndexArray:
    """Who is taken in part, and then those whose worth is nearest to their price.

    Near means little against a power of the worth: those that are worth little matter little, and
    filling decides them as well.
    """
    size = np.maximum(np.maximum(table.utilities, sharp.paid), _CLEAR)
    far = np.abs(table.utilities - sharp.paid) / size**_POWER
    far[(sharp.x > _CLEAR) & (sharp.x < 1 - _CLEAR)] = -1
    far[parts.out | ~table.fits_alone] = np.inf
    nearest = np.argsort(far, kind="stable")[:_UNDECIDED]
    return np.sort(nearest[np.isfinite(far[nearest])])


def _whole(worths: Floats, lines: Floats, spent: Floats) -> NDArray[np.bool_]:
    """The best whole choice of some in what others leave of each line."""
    rest = np.maximum(1 - spent, 0)
    tight = lines.sum(axis=1) > rest
    model = LinearModel(worths, np.ones(len(worths), dtype=np.bool_))
    model.add_constraints(lines[tight], rest[tight])
    taken: NDArray[np.bool_] = model.solve_integer(_NODES, _GAP).x > 0.5
    return taken
