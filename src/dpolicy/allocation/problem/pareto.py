"""Removal of vectors of remaining budget and of constraint rows that others imply."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.problem.knapsack import ConstraintRow
from dpolicy.privacy.loss_arrays import LossArray

#: Distances at which a set is compared with its neighbours; most implying sets are adjacent.
NEIGHBOUR_DISTANCES = (1, 2, 4, 8)


def pareto_minimal(
    groups: NDArray[np.intp], remaining: LossArray
) -> tuple[NDArray[np.intp], LossArray]:
    """Return the Pareto-minimal vectors of each group, sorted by group.

    In each pass the vector with the smallest sum in every group is minimal and is kept; the vectors
    that it implies are dropped.
    """
    order = np.lexsort((remaining.sum(axis=1, dtype=np.float64), groups))
    groups, remaining = groups[order], remaining[order]
    open_vectors = np.arange(len(groups))
    kept = []
    while len(open_vectors):
        first = np.flatnonzero(np.diff(groups[open_vectors], prepend=-1))
        kept.append(open_vectors[first])
        sizes = np.diff(np.append(first, len(open_vectors)))
        smallest = remaining[np.repeat(open_vectors[first], sizes)]
        implied = (remaining[open_vectors] >= smallest).all(axis=1)
        open_vectors = open_vectors[~implied]
    minimal = np.sort(np.concatenate(kept)) if kept else open_vectors
    return groups[minimal], remaining[minimal]


def drop_implied_vectors(
    member: NDArray[np.bool_], set_index: NDArray[np.intp], remaining: LossArray
) -> tuple[NDArray[np.intp], LossArray]:
    """Drop vectors that a neighbouring superset of items implies; vectors are sorted by set.

    A vector is implied if a superset of its items must fit into a vector that is not larger. Sets
    that follow each other along an axis mostly contain one another, so comparing near neighbours
    finds most implied vectors.
    """
    for distance in NEIGHBOUR_DISTANCES:
        for step in (distance, -distance):
            lower = np.arange(max(0, -step), len(member) - max(0, step))
            inside = ~(member[lower] & ~member[lower + step]).any(axis=1)
            above = np.full(len(member), -1, np.intp)
            above[lower[inside]] = lower[inside] + step
            kept = ~_find_implied(above, set_index, remaining)
            set_index, remaining = set_index[kept], remaining[kept]
    return set_index, remaining


def _find_implied(
    above: NDArray[np.intp], set_index: NDArray[np.intp], remaining: LossArray
) -> NDArray[np.bool_]:
    """Return which vectors have a vector that is not larger in the superset `above` their set.

    `above` is −1 for a set without such a superset.
    """
    bounds = np.searchsorted(set_index, np.arange(len(above) + 1))
    supersets = above[set_index]
    counts = np.where(supersets < 0, 0, bounds[supersets + 1] - bounds[supersets])
    vectors = np.repeat(np.arange(len(set_index)), counts)
    first = np.repeat(bounds[supersets] - np.cumsum(counts) + counts, counts)
    smaller = (remaining[first + np.arange(len(vectors))] <= remaining[vectors]).all(axis=1)
    implied = np.zeros(len(set_index), bool)
    implied[vectors[smaller]] = True
    return implied


def drop_implied_rows(rows: Iterable[ConstraintRow]) -> tuple[ConstraintRow, ...]:
    """Drop rows that another row with the same candidates and costs implies."""
    rows_by_candidates: dict[bytes, list[ConstraintRow]] = {}
    for new in rows:
        kept = rows_by_candidates.setdefault(new.candidates.tobytes(), [])
        if any(_implies(old, new) for old in kept):
            continue
        kept[:] = [old for old in kept if not _implies(new, old)]
        kept.append(new)
    return tuple(row for kept in rows_by_candidates.values() for row in kept)


def _implies(tight: ConstraintRow, loose: ConstraintRow) -> bool:
    """Return whether a selection that fits `tight` fits `loose`.

    It does if every vector of `loose` has a vector in `tight` that is not larger.
    """
    if tight.require_all != loose.require_all or not _have_equal_costs(tight, loose):
        return False
    return bool((tight.remaining[:, np.newaxis] <= loose.remaining).all(axis=2).any(axis=0).all())


def _have_equal_costs(first: ConstraintRow, second: ConstraintRow) -> bool:
    if first.table is second.table:
        return np.array_equal(first.cost_kinds, second.cost_kinds)
    return np.array_equal(first.costs, second.costs)
