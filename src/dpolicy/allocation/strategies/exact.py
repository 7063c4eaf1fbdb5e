"""The best choice, by a programme in whole numbers, and a proof of how good it is.

It begins with the lines of the bound. A limit that a proposal breaks enters with a switch for each
column, of which one must be on. What a proposal then still breaks is within the solver's tolerance:
those who together are too many are ruled out by name, which no tolerance gets round. Each of these
programmes asks for less than the round does, so what bounds it bounds the round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpolicy.allocation.feasible import Chosen, Filling
from dpolicy.allocation.loads import Floats, Scale, shares
from dpolicy.allocation.problem import Allocation, Problem
from dpolicy.allocation.solver import Answer, Model
from dpolicy.allocation.strategies.efficient import by_worth
from dpolicy.allocation.strategies.price import priced, worth
from dpolicy.allocation.table import Ints, Table, table_of

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
    switched: Ints
    too_many: tuple[Ints, ...]


def exact(problem: Problem, nodes: int | None = None, gap: float = 0.0) -> Allocation:
    """The best choice up to a gap, as far as so many nodes of all programmes lead."""
    table = table_of(problem)
    nodes = _WORK // max(1, int(table.open.sum())) if nodes is None else nodes
    scale, filling = Scale(table), Filling(table)
    chosen, bound = priced(scale, filling)
    most = bound.value
    asked = _Asked(bound.parts.lines, np.empty(0, np.intp), ())
    order = by_worth(table, bound.parts.paid())
    while nodes > 0:
        answer = _solved(table, asked, nodes, gap)
        proposal = (answer.x[: len(table.open)] > 0.5) & table.open
        broken = filling.broken(proposal)
        found = filling.fill(np.concatenate([order[proposal[order]], order[~proposal[order]]]))
        chosen = found if worth(table, found) > worth(table, chosen) else chosen
        if answer.bound * _MARGIN >= worth(table, chosen):  # else the solver is wrong
            most = min(most, answer.bound * _MARGIN)
        if not len(broken) or worth(table, chosen) >= most * (1 - gap):
            break
        asked, nodes = _more(table, asked, broken, proposal), nodes - max(answer.nodes, _LEAST)
    return Allocation(chosen, max(most, worth(table, chosen)), bound.row_prices(table))


def _more(table: Table, asked: _Asked, broken: Ints, proposal: Chosen) -> _Asked:
    """The programme with some limits that a proposal breaks, or the sets that break them."""
    new = np.setdiff1d(broken, asked.switched)[:_MORE]
    if len(new):
        lines = np.concatenate([asked.lines, np.minimum(shares(table, new), 2.0)])
        return replace(asked, lines=lines, switched=np.concatenate([asked.switched, new]))
    sets = tuple(_too_many(table, limit, proposal) for limit in broken[:_MORE].tolist())
    return replace(asked, too_many=(*asked.too_many, *sets))


def _solved(table: Table, asked: _Asked, nodes: int, gap: float) -> Answer:
    """The answer to what is asked."""
    size, room = len(table.open), table.room
    several = asked.switched[(room[asked.switched] >= 0).sum(axis=1) > 1]
    limits, columns = np.nonzero(room[several] >= 0)
    switches = len(limits)
    open_ = np.concatenate([table.open, np.ones(switches, dtype=np.bool_)])
    open_[:size] &= ~(asked.lines > 1).any(axis=0)
    model = Model(np.concatenate([table.utilities, np.zeros(switches)]), open_)
    model.add(
        np.hstack([asked.lines, np.zeros((len(asked.lines), switches))]), np.ones(len(asked.lines))
    )
    parts = np.minimum(shares(table, several[limits], columns), 2.0)
    parts[:, ~open_[:size]] = 0.0
    all_of = np.maximum(parts.sum(axis=1), 1.0)
    model.add(np.hstack([parts, np.diag(all_of - 1)]), all_of)
    one_on = np.zeros((len(several), size + switches))
    one_on[limits, size + np.arange(switches)] = -1.0
    model.add(one_on, -np.ones(len(several)))
    named = np.zeros((len(asked.too_many), size + switches))
    for line, who in zip(named, asked.too_many, strict=True):
        line[who] = 1.0
    model.add(named, named.sum(axis=1) - 1)
    return model.in_whole(nodes, gap)


def _too_many(table: Table, limit: int, proposal: Chosen) -> Ints:
    """Some of a proposal who break a limit, none of whom can be spared."""
    row = table.limit_rows[limit]
    costs, room = table.costs[table.books[row]], table.room[limit].tolist()
    who = np.flatnonzero(proposal & table.inside[row]).tolist()
    for candidate in list(who):
        rest = [other for other in who if other != candidate]
        sums = [sum(column) for column in zip(*costs[rest].tolist(), strict=True)]
        if rest and not any(s <= r for s, r in zip(sums, room, strict=True)):
            who = rest
    return np.array(who, dtype=np.intp)
