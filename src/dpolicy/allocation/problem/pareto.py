"""Vectors of what is left → only those that can bind; rows → without those that others imply."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.problem.knapsack import ConstraintRow
from dpolicy.privacy.loss_arrays import LossArray

#: How far away a set may be that implies another; most are next to it.
NEIGHBOUR_DISTANCES = (1, 2, 4, 8)


def pareto_minimal(groups: NDArray[np.intp], left: LossArray) -> tuple[NDArray[np.intp], LossArray]:
    """Vectors by group → the Pareto-minimal ones of each, sorted by group.

    A vector with the least sum is minimal. It stays, those that it implies go, and so on with the
    rest of each group, all groups at a time.
    """
    order = np.lexsort((left.sum(axis=1, dtype=np.float64), groups))
    groups, left = groups[order], left[order]
    rest = np.arange(len(groups))
    kept = []
    while len(rest):
        first = np.flatnonzero(np.diff(groups[rest], prepend=-1))
        kept.append(rest[first])
        sizes = np.diff(np.append(first, len(rest)))
        implied = (left[rest] >= left[np.repeat(rest[first], sizes)]).all(axis=1)
        rest = rest[~implied]
    chosen = np.sort(np.concatenate(kept)) if kept else rest
    return groups[chosen], left[chosen]


def drop_implied_vectors(
    member: NDArray[np.bool_], set_index: NDArray[np.intp], left: LossArray
) -> tuple[NDArray[np.intp], LossArray]:
    """Vectors of different sets of items, sorted by set → without those that sets nearby imply.

    What fits into less, with more items beside it, fits. Sets that follow each other along an axis
    mostly contain one another, so a look at some that are near finds most of it.
    """
    for distance in NEIGHBOUR_DISTANCES:
        for step in (distance, -distance):
            lower = np.arange(max(0, -step), len(member) - max(0, step))
            inside = ~(member[lower] & ~member[lower + step]).any(axis=1)
            above = np.full(len(member), -1, np.intp)
            above[lower[inside]] = lower[inside] + step
            kept = ~_implied(above, set_index, left)
            set_index, left = set_index[kept], left[kept]
    return set_index, left


def _implied(
    above: NDArray[np.intp], set_index: NDArray[np.intp], left: LossArray
) -> NDArray[np.bool_]:
    """Which vectors have a smaller one in the set that is `above` theirs; −1 for no such set."""
    bounds = np.searchsorted(set_index, np.arange(len(above) + 1))
    others = above[set_index]
    times = np.where(others < 0, 0, bounds[others + 1] - bounds[others])
    own = np.repeat(np.arange(len(set_index)), times)
    first = np.repeat(bounds[others] - np.cumsum(times) + times, times)
    smaller = (left[first + np.arange(len(own))] <= left[own]).all(axis=1)
    implied = np.zeros(len(set_index), bool)
    implied[own[smaller]] = True
    return implied


def drop_implied_rows(rows: Iterable[ConstraintRow]) -> tuple[ConstraintRow, ...]:
    """Rows without those that another with the same candidates and costs implies."""
    found: dict[bytes, list[ConstraintRow]] = {}
    for new in rows:
        alike = found.setdefault(new.candidates.tobytes(), [])
        if any(_implies(old, new) for old in alike):
            continue
        alike[:] = [old for old in alike if not _implies(new, old)]
        alike.append(new)
    return tuple(row for alike in found.values() for row in alike)


def _implies(tight: ConstraintRow, loose: ConstraintRow) -> bool:
    """Whether what fits into one row fits into the other: each vector has a smaller one."""
    if tight.require_all != loose.require_all or not _cost_alike(tight, loose):
        return False
    return bool((tight.remaining[:, np.newaxis] <= loose.remaining).all(axis=2).any(axis=0).all())


def _cost_alike(one: ConstraintRow, other: ConstraintRow) -> bool:
    if one.table is other.table:
        return np.array_equal(one.cost_kinds, other.cost_kinds)
    return np.array_equal(one.costs, other.costs)
