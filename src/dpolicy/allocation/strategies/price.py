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

from dpolicy.allocation.bound import Bound, Parts, Sharpened, best_in_parts, bound_of, sharpened
from dpolicy.allocation.feasible import Chosen, Filling
from dpolicy.allocation.loads import Floats, Scale, shares
from dpolicy.allocation.problem import Allocation, Problem
from dpolicy.allocation.solver import Model
from dpolicy.allocation.strategies.efficient import by_share, by_worth
from dpolicy.allocation.table import Ints, Table, table_of

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


def price(problem: Problem) -> Allocation:
    """The best of some passes of pricing, choosing in whole, and filling."""
    table = table_of(problem)
    if problem.later is None or not problem.later.any():
        chosen, bound = priced(Scale(table), Filling(table))
        return bound.with_choice(table, chosen)
    bound = bound_of(Scale(table))
    net = table.utilities - _PATIENCE * problem.later
    patient = replace(table, utilities=np.maximum(net, 0), open=table.open & (net > 0))
    chosen, _ = priced(Scale(patient), Filling(patient))
    return bound.with_choice(table, chosen)


def priced(scale: Scale, filling: Filling) -> tuple[Chosen, Bound]:
    """The best choice of some passes, the first by utility per share; and the bound they priced."""
    table, bound = scale.table, bound_of(scale)
    chosen = filling.fill(by_share(scale))
    if not len(table.room):
        return chosen, bound
    x, limits = bound.parts.x, bound.parts.limits[bound.parts.prices > 0]
    columns = np.full(len(table.room), -1)
    for _ in range(_PASSES):
        before, columns = columns, scale.loads(x).argmin(axis=1)
        if (before == columns).all():
            break
        parts = best_in_parts(scale, columns, limits)
        found = filling.fill(_refined(table, parts, filling, columns))
        if worth(table, found) > worth(table, chosen):
            chosen = found
        x, limits = chosen.astype(np.float64), parts.limits[parts.prices > 0]
    return chosen, bound


def worth(table: Table, chosen: Chosen) -> float:
    """What a choice is worth."""
    return float(table.utilities[chosen].sum())


def _refined(table: Table, parts: Parts, filling: Filling, columns: Ints) -> Ints:
    """The candidates in the order to fill: those of a good whole choice, then the others."""
    sharp, lines = sharpened(table, parts), parts.lines
    undecided = _undecided(table, parts, sharp)
    settled = (sharp.x > 0.5) & table.open
    settled[undecided] = False
    for _ in range(_AGAIN):
        chosen, spent = settled.copy(), lines[:, settled].sum(axis=1)
        chosen[undecided] = _whole(table.utilities[undecided], lines[:, undecided], spent)
        broken = filling.broken(chosen)
        if not len(broken):
            break
        more = np.minimum(shares(table, broken, columns[broken]), 2.0)
        lines = np.concatenate([lines, more])
    order = by_worth(table, np.maximum(sharp.paid, 0))
    return np.concatenate([order[chosen[order]], order[~chosen[order]]])


def _undecided(table: Table, parts: Parts, sharp: Sharpened) -> Ints:
    """Who is taken in part, and then those whose worth is nearest to their price.

    Near means little against a power of the worth: those that are worth little matter little, and
    filling decides them as well.
    """
    size = np.maximum(np.maximum(table.utilities, sharp.paid), _CLEAR)
    far = np.abs(table.utilities - sharp.paid) / size**_POWER
    far[(sharp.x > _CLEAR) & (sharp.x < 1 - _CLEAR)] = -1
    far[parts.out | ~table.open] = np.inf
    nearest = np.argsort(far, kind="stable")[:_UNDECIDED]
    return np.sort(nearest[np.isfinite(far[nearest])])


def _whole(worths: Floats, lines: Floats, spent: Floats) -> NDArray[np.bool_]:
    """The best whole choice of some in what others leave of each line."""
    rest = np.maximum(1 - spent, 0)
    tight = lines.sum(axis=1) > rest
    model = Model(worths, np.ones(len(worths), dtype=np.bool_))
    model.add(lines[tight], rest[tight])
    taken: NDArray[np.bool_] = model.in_whole(_NODES, _GAP).x > 0.5
    return taken
