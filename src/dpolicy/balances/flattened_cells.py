"""Flattened cells: cells of a step function without one axis, with the maximum along it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.touched_cells import BlockPositions


def flatten_cells(
    low: BlockPositions, high: BlockPositions, amounts: NDArray[np.int64], along: int
) -> tuple[BlockPositions, BlockPositions, NDArray[np.int64]]:
    """Project cells along one axis to disjoint cells with the maximum of each column.

    For each other axis in turn, fewest borders first, cut every cell at the borders of the cells
    that agree with it on the axes so far. Cells that agree on all axes form one group.
    """
    axes = sorted(set(range(len(low))) - {along}, key=lambda axis: len(np.unique(low[axis])))
    cells = np.arange(low.shape[1])
    group = np.zeros_like(cells)
    for axis in axes:
        values, ranks = np.unique([low[axis], high[axis]], return_inverse=True)
        starts, ends = (group * len(values) + rank for rank in ranks.reshape(2, -1))
        bounds = np.unique(np.concatenate([starts, ends]))
        first, last = np.searchsorted(bounds, starts), np.searchsorted(bounds, ends)
        counts = last - first
        group = np.repeat(last - np.cumsum(counts), counts) + np.arange(counts.sum())
        cells, low, high = (np.repeat(a, counts, axis=-1) for a in (cells, low, high))
        low[axis], high[axis] = (values[bounds[n] % len(values)] for n in (group, group + 1))
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    rows = np.maximum.reduceat(amounts.take(cells[order], axis=0), starts, axis=0)
    return low[:, order[starts]], high[:, order[starts]], rows
