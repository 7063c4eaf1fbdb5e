"""The best choice, by a programme in whole numbers, and a proof of how good it is.

It begins with the lines of the bound. A limit that a proposal breaks enters with a switch for each
column, of which one must be on. What a proposal then still breaks is within the solver's tolerance:
those who together are too many are ruled out by name, which no tolerance gets round. Each of these
programmes asks for less than the round does, so what bounds it bounds the round.
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
from dpolicy.allocation.solving.greedy_fill import Chosen, GreedyFill
from dpolicy.allocation.solving.highs import LinearModel, SolverResult
from dpolicy.allocation.solving.utilisation import Floats, UtilisationTable, utilisation_shares
from dpolicy.allocation.strategies.efficient import order_by_utility_per_price
from dpolicy.allocation.strategies.price import solve_by_prices, total_utility

#: Nodes that a programme counts for at least, and limits that are added to it at a time.
_LEAST, _MORE = 50, 60
#: Nodes of all programmes, times candidates: a node takes longer where there are more of them.
_WORK = 50_000
#: Sums of floats, and the solver's, err by less.
_MARGIN = 1 + 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What the programme asks for: lines, limits with a switch a column, and who is too many."""

    lines: Floats
    switched: IndexArray
    too_many: tuple[IndexArray, ...]


def exact(problem: AllocationProblem, nodes: int | None = None, gap: float = 0.0) -> Solution:
    """The best choice up to a gap, as far as so many nodes of all programmes lead."""
    table = build_constraint_matrix(problem)
    nodes = _WORK // max(1, int(table.fits_alone.sum())) if nodes is None else nodes
    scale, filling = UtilisationTable(table), GreedyFill(table)
    chosen, bound = solve_by_prices(scale, filling)
    most = bound.value
    asked = _Asked(bound.parts.lines, np.empty(0, np.intp), ())
    order = order_by_utility_per_price(table, bound.parts.candidate_prices())
    while nodes > 0:
        answer = _solved(table, asked, nodes, gap)
        proposal = (answer.x[: len(table.fits_alone)] > 0.5) & table.fits_alone
        broken = filling.violated_limits(proposal)
        found = filling.fill(np.concatenate([order[proposal[order]], order[~proposal[order]]]))
        chosen = found if total_utility(table, found) > total_utility(table, chosen) else chosen
        if answer.bound * _MARGIN >= total_utility(table, chosen):  # else the solver is wrong
            most = min(most, answer.bound * _MARGIN)
        if not len(broken) or total_utility(table, chosen) >= most * (1 - gap):
            break
        asked, nodes = _more(table, asked, broken, proposal), nodes - max(answer.nodes, _LEAST)
    return Solution(chosen, max(most, total_utility(table, chosen)), bound.row_prices(table))


def _more(
    table: ConstraintMatrix, constraints: _Asked, broken: IndexArray, proposal: Chosen
) -> _Asked:
    """The programme with some limits that a proposal breaks, or the sets that break them."""
    new = np.setdiff1d(broken, constraints.switched)[:_MORE]
    if len(new):
        lines = np.concatenate([constraints.lines, np.minimum(utilisation_shares(table, new), 2.0)])
        return replace(
            constraints, lines=lines, switched=np.concatenate([constraints.switched, new])
        )
    sets = tuple(_too_many(table, limit, proposal) for limit in broken[:_MORE].tolist())
    return replace(constraints, too_many=(*constraints.too_many, *sets))


def _solved(table: ConstraintMatrix, constraints: _Asked, nodes: int, gap: float) -> SolverResult:
    """The answer to what is asked."""
    size, room = len(table.fits_alone), table.capacity
    several = constraints.switched[(room[constraints.switched] >= 0).sum(axis=1) > 1]
    limits, columns = np.nonzero(room[several] >= 0)
    switches = len(limits)
    open_ = np.concatenate([table.fits_alone, np.ones(switches, dtype=np.bool_)])
    open_[:size] &= ~(constraints.lines > 1).any(axis=0)
    model = LinearModel(np.concatenate([table.utilities, np.zeros(switches)]), open_)
    model.add_constraints(
        np.hstack([constraints.lines, np.zeros((len(constraints.lines), switches))]),
        np.ones(len(constraints.lines)),
    )
    parts = np.minimum(utilisation_shares(table, several[limits], columns), 2.0)
    parts[:, ~open_[:size]] = 0.0
    all_of = np.maximum(parts.sum(axis=1), 1.0)
    model.add_constraints(np.hstack([parts, np.diag(all_of - 1)]), all_of)
    one_on = np.zeros((len(several), size + switches))
    one_on[limits, size + np.arange(switches)] = -1.0
    model.add_constraints(one_on, -np.ones(len(several)))
    named = np.zeros((len(constraints.too_many), size + switches))
    for line, who in zip(named, constraints.too_many, strict=True):
        line[who] = 1.0
    model.add_constraints(named, named.sum(axis=1) - 1)
    return model.solve_integer(nodes, gap)


def _too_many(table: ConstraintMatrix, limit: int, proposal: Chosen) -> IndexArray:
    """Some of a proposal who break a limit, none of whom can be spared."""
    row = table.limit_rows[limit]
    costs, room = table.costs[table.cost_book_of_row[row]], table.capacity[limit].tolist()
    who = np.flatnonzero(proposal & table.membership[row]).tolist()
    for candidate in list(who):
        rest = [other for other in who if other != candidate]
        sums = [sum(column) for column in zip(*costs[rest].tolist(), strict=True)]
        if rest and not any(s <= r for s, r in zip(sums, room, strict=True)):
            who = rest
    return np.array(who, dtype=np.intp)
