"""Touched cells: the cells of a step function that a region touches, in the order of its points.

Cells are numbered by the history of charges. Where a choice between cells must not depend on that
history, the smallest point of the region in each cell decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.releases.regions import Box, Point

#: Numbers of cells, valid until the next change.
SegmentCells = NDArray[np.intp]

#: Bounds or points of cells, axes × cells.
BlockPositions = NDArray[np.int64]

#: Keys must be smaller, so that sums of coordinates × strides do not overflow.
_MAX_KEYS = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class TouchedCells:
    """Cells that share a block with a region.

    `points` are the lexicographically smallest points of the region in each cell, axes × cells. The
    order of `keys` is the order of these points.
    """

    cells: SegmentCells
    points: BlockPositions
    keys: NDArray[np.int64]

    def first(self, positions: NDArray[np.intp]) -> int:
        """Return the one of these positions whose cell has the smallest point."""
        return int(positions[self.keys[positions].argmin()])

    def point(self, position: int) -> Point:
        """Return the smallest point of the region in the cell at a position."""
        return tuple(self.points[:, position].tolist())


def key_strides(space: Box) -> NDArray[np.int64] | None:
    """Return the factors of the coordinates of a key; None if keys do not fit into 64 bits."""
    strides, size = [1], 1
    for low, high in reversed(space):
        size *= 2 * max(abs(low), abs(high)) + 1
        strides.append(size)
    return np.array(strides[-2::-1], np.int64) if size < _MAX_KEYS else None


def point_keys(points: BlockPositions, strides: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return numbers whose order is the lexicographic order of the points."""
    if strides is not None:
        keys: NDArray[np.int64] = strides @ points
        return keys
    ranks = np.empty(points.shape[1], np.int64)
    ranks[np.lexsort(points[::-1])] = np.arange(points.shape[1])
    return ranks


def unite_parts(
    parts: Sequence[tuple[SegmentCells, BlockPositions]],
) -> tuple[SegmentCells, BlockPositions]:
    """Unite the cells of several parts of a region; of the points of a cell, keep the smallest."""
    cells = np.concatenate([cells for cells, _ in parts])
    points = np.concatenate([points for _, points in parts], axis=1)
    order = np.lexsort((*points[::-1], cells))
    kept = order[np.diff(cells[order], prepend=-1) != 0]
    return cells[kept], points[:, kept]
