"""Segments: the loss of one rule as a step function over the partition space.

The function has only the borders that charges created. Blocks that all charges treat the same share
a cell, which is a box with one row of amounts. The cells are disjoint and cover the space, so a
check of the cells that a region touches is a check of all its blocks (theory 6.1). The time of a
check depends on the number of borders, not on the number of blocks. Amounts are in quanta; an
amount that reaches INFINITE stays there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.regions import Box, Point, Region

#: Amounts: one row of columns, or a matrix of columns × cells.
SegmentAmounts = NDArray[np.int64]

#: Numbers of cells, valid until the next change.
SegmentCells = NDArray[np.intp]

#: Bounds of cells, axes × cells.
BlockPositions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Teeth:
    """Disjoint intervals of one axis, in ascending order."""

    axis: int
    starts: BlockPositions
    ends: BlockPositions


@dataclass(frozen=True, slots=True)
class _Comb:
    """One box, or one box per tooth if there are teeth: boxes that differ on one axis only.

    `hull` is the box around all of them. Listed values of a partition form such a comb.
    """

    hull: Box
    teeth: _Teeth | None = None


class Segments:
    """Loss of a rule over a space. Mutable; owned by the `Balances` that holds it.

    Each cell has `low` and `high` per axis and `amounts` per column. The arrays are longer than
    needed and grow by doubling. Each time the number of cells has doubled, equal neighbours are
    joined, so the cost of joining is amortised over the charges.
    """

    __slots__ = ("_amounts", "_count", "_high", "_join_at", "_low", "_merged", "_space")

    #: Up to this number of boxes, one lookup per box is faster than combs.
    _MAX_SINGLE_LOOKUPS = 8

    def __init__(self, space: Box, row: SegmentAmounts) -> None:
        if not all(low < high for low, high in space) or row.min(initial=0) < 0:
            raise InvariantBroken("the space is empty, or an amount is negative")
        self._space = space
        self._low = np.array([[low] for low, _ in space], np.int64).reshape(len(space), 1)
        self._high = np.array([[high] for _, high in space], np.int64).reshape(len(space), 1)
        self._amounts = np.minimum(np.array(row, np.int64).reshape(-1, 1), INFINITE)
        self._count = 1
        self._join_at = 64
        self._merged: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return self._count

    @property
    def space(self) -> Box:
        """The box that contains the whole space."""
        return self._space

    @property
    def bytes_used(self) -> int:
        """Size of the arrays in bytes, including unused capacity."""
        return self._low.nbytes + self._high.nbytes + self._amounts.nbytes

    def add(self, region: Region, row: SegmentAmounts) -> None:
        """Charge the blocks of the region only (theory 6.1); the order of charges is irrelevant."""
        column = self._column(row)
        if not column.any():
            return
        for comb in self._combs(region):
            cells = self._cut(comb)
            spent = self.columns(cells)
            spent += column  # in place: a new matrix costs more than the sum
            self._amounts[:, cells] = np.minimum(spent, INFINITE, out=spent)
        self._join_if_doubled()

    def subtract(self, region: Region, row: SegmentAmounts) -> bool:
        """Undo an earlier `add`.

        Return False, without changes, if a sum is saturated or was merged (theory 6.3: a maximum
        has no inverse); the caller must then recompute it.
        """
        column = self._column(row)
        if not column.any():
            return True
        spent = self.columns(self.cells_touching(region))
        if (spent[row > 0] >= INFINITE).any() or self._touches_merged(region):
            return False
        if (spent < column).any():
            raise InvariantBroken("more is subtracted from a block than was added")
        for comb in self._combs(region):
            cells = self._cut(comb)  # may reallocate the amounts
            self._amounts[:, cells] -= column
        self._join_if_doubled()
        return True

    def cells_touching(self, region: Region) -> SegmentCells:
        """Return the cells that share a block with the region, in ascending order."""
        combs = self._combs(region)
        if len(combs) == 1:
            return self._touching(combs[0])
        touching = np.zeros(self._count, np.bool_)
        for comb in combs:
            touching[self._touching(comb)] = True
        return np.flatnonzero(touching)

    @property
    def amounts(self) -> SegmentAmounts:
        """Amounts of all cells, columns × cells. A view; do not write to it."""
        return self._amounts[:, : self._count]

    def columns(self, cells: SegmentCells) -> SegmentAmounts:
        """Return a copy of the amounts of these cells, columns × cells."""
        return self._amounts.take(cells, axis=1)

    def amounts_at(self, point: Point) -> SegmentAmounts:
        """Return the amounts of the block that contains a point."""
        cells = self.cells_touching(Region((tuple((x, x + 1) for x in point),)))
        if len(cells) != 1:
            raise InvariantBroken(f"the point {point} lies in {len(cells)} cells instead of one")
        return self.columns(cells)[:, 0]

    def first_point(self, cells: SegmentCells, region: Region) -> Point | None:
        """Return the lexicographically smallest point of the region in one of these cells.

        The result does not depend on how the space was cut: the smallest point of a union of boxes
        is a low corner.
        """
        corners: list[Point] = []
        for box in self._clip(region):
            inside = cells
            for axis, (start, end) in enumerate(box):
                inside = inside[self._low[axis][inside] < end]
                inside = inside[self._high[axis][inside] > start]
            corner: list[int] = []
            for axis, (start, end) in enumerate(box):
                lows = np.maximum(self._low[axis][inside], start)
                corner.append(int(lows.min(initial=end)))
                inside = inside[lows == corner[-1]]
            if len(inside):
                corners.append(tuple(corner))
        return min(corners, default=None)

    def merge(self, axis: int, low: int, high: int) -> None:
        """Merge the steps of an axis from `low` to `high` (exclusive); keep the maximum per column.

        Theory 6.3: no amount decreases, and a later charge adds the same to the merged step and to
        each of its blocks. A release that the merged step allows, each block would have allowed.
        """
        start, end = max(low, self._space[axis][0]), min(high, self._space[axis][1])
        if end - start < 2:
            return
        slab = (*self._space[:axis], (start, end), *self._space[axis + 1 :])
        inside = self._cut(_Comb(slab))
        lows, highs, amounts = _flatten(
            self._low[:, inside], self._high[:, inside], self.columns(inside), axis
        )
        lows[axis], highs[axis] = start, end
        outside = np.delete(np.arange(self._count), inside)
        self._low = np.hstack([self._low[:, outside], lows])
        self._high = np.hstack([self._high[:, outside], highs])
        self._amounts = np.hstack([self.columns(outside), amounts])
        self._count = self._amounts.shape[1]
        outside_merges = [m for m in self._merged if m[0] != axis or m[1] < start or m[2] > end]
        self._merged = [*outside_merges, (axis, start, end)]
        self._join()

    def copy(self) -> Segments:
        """Return an independent copy."""
        return Segments.from_arrays(self.to_arrays())

    def to_arrays(self) -> dict[str, NDArray[np.int64]]:
        """Return the function as plain arrays: views, valid until the next change."""
        used = slice(self._count)
        return {
            "space": np.array(self._space, np.int64).reshape(-1, 2),
            "low": self._low[:, used],
            "high": self._high[:, used],
            "amounts": self._amounts[:, used],
            "merged": np.array(self._merged, np.int64).reshape(-1, 3),
        }

    @classmethod
    def from_arrays(cls, parts: Mapping[str, NDArray[np.int64]]) -> Segments:
        """Build segments from the arrays of `to_arrays`."""
        space = tuple((int(low), int(high)) for low, high in parts["space"])
        segments = cls(space, parts["amounts"][:, 0])
        segments._low, segments._high = parts["low"].copy(), parts["high"].copy()
        segments._amounts = parts["amounts"].copy()
        segments._count = segments._amounts.shape[1]
        segments._join_at = max(segments._join_at, 2 * segments._count)
        segments._merged = [(int(a), int(low), int(high)) for a, low, high in parts["merged"]]
        return segments

    def _clip(self, region: Region) -> list[Box]:
        """Return the boxes of a region, clipped to the space."""
        cut = [
            tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, self._space, strict=True))
            for box in region.boxes
        ]
        return [box for box in cut if all(low < high for low, high in box)]

    def _combs(self, region: Region) -> list[_Comb]:
        """Return the boxes of a region as combs, with the axis of teeth that needs fewest combs."""
        boxes = self._clip(region)
        if len(boxes) <= self._MAX_SINGLE_LOOKUPS:
            return [_Comb(box) for box in boxes]
        axis, groups = min(
            ((axis, _group_by_other_axes(boxes, axis)) for axis in range(len(self._space))),
            key=lambda grouping: len(grouping[1]),
        )
        return [_build_comb(group, axis) for group in groups]

    def _touching(self, comb: _Comb) -> SegmentCells:
        """Return the cells that share a block with a comb.

        A side of the hull at the border of the space needs no comparison.
        """
        touching: NDArray[np.bool_] | None = None
        for axis, (start, end) in enumerate(comb.hull):
            low, high = self._space[axis]
            if end < high:
                below = self._low[axis, : self._count] < end
                touching = (
                    below if touching is None else np.logical_and(touching, below, out=touching)
                )
            if start > low:
                above = self._high[axis, : self._count] > start
                touching = (
                    above if touching is None else np.logical_and(touching, above, out=touching)
                )
        cells = np.arange(self._count) if touching is None else np.flatnonzero(touching)
        return cells if comb.teeth is None else self._touching_teeth(cells, comb.teeth)[0]

    def _touching_teeth(
        self, cells: SegmentCells, teeth: _Teeth
    ) -> tuple[SegmentCells, BlockPositions, BlockPositions]:
        """Return the cells that touch a tooth, and the bounds of the first tooth of each."""
        first = np.searchsorted(teeth.ends, self._low[teeth.axis][cells], side="right")
        touching = teeth.starts.take(first, mode="clip") < self._high[teeth.axis][cells]
        touching &= first < len(teeth.ends)
        return cells[touching], teeth.starts[first[touching]], teeth.ends[first[touching]]

    def _cut(self, comb: _Comb) -> SegmentCells:
        """Split cells at the borders of the comb; return the cells that fill it."""
        cells = self._touching(comb)
        for axis, (start, end) in enumerate(comb.hull):
            if comb.teeth is None or axis != comb.teeth.axis:
                self._split_off(cells[self._low[axis][cells] < start], axis, start, below=True)
                self._split_off(cells[self._high[axis][cells] > end], axis, end, below=False)
        return cells if comb.teeth is None else self._cut_teeth(cells, comb.teeth)

    def _cut_teeth(self, cells: SegmentCells, teeth: _Teeth) -> SegmentCells:
        """Split cells at the teeth, one tooth per pass; return the cells that fill the teeth."""
        filled = []
        while len(cells):
            cells, starts, ends = self._touching_teeth(cells, teeth)
            below = self._low[teeth.axis][cells] < starts
            self._split_off(cells[below], teeth.axis, starts[below], below=True)
            above, count = self._high[teeth.axis][cells] > ends, self._count
            self._split_off(cells[above], teeth.axis, ends[above], below=False)
            filled.append(cells)
            cells = np.arange(count, self._count)
        return np.concatenate(filled)

    def _split_off(
        self, cells: SegmentCells, axis: int, border: int | BlockPositions, *, below: bool
    ) -> None:
        """Move the part of each cell below `border` (or from it on) into a new cell."""
        start, end = self._count, self._count + len(cells)
        if start == end:
            return
        if end > self._amounts.shape[1]:
            room = max(end, 2 * self._amounts.shape[1])
            self._low, self._high = _lengthen(self._low, room), _lengthen(self._high, room)
            self._amounts = _lengthen(self._amounts, room)
        for array in (self._low, self._high, self._amounts):
            array[:, start:end] = array[:, cells]
        outer, inner = (self._high, self._low) if below else (self._low, self._high)
        outer[axis, start:end] = border
        inner[axis, cells] = border
        self._count = end

    def _join_if_doubled(self) -> None:
        if self._count >= self._join_at:
            self._join()

    def _join(self) -> None:
        """Join neighbouring cells with the same row, along each axis in turn."""
        axes = range(len(self._space))
        for axis in axes:
            other_axes = [other for other in axes if other != axis]
            used = slice(self._count)
            order = np.lexsort((self._low[axis, used], *(self._low[a, used] for a in other_axes)))
            left, right = order[:-1], order[1:]
            same = self._high[axis][left] == self._low[axis][right]
            for array in (self._low[other_axes], self._high[other_axes], self._amounts):
                for line in array:
                    same[same] = line[left[same]] == line[right[same]]
            if not same.any():
                continue
            first, last = np.append(True, ~same), np.append(~same, True)
            ends = self._high[axis][order[last]]
            self._low, self._high = self._low[:, order[first]], self._high[:, order[first]]
            self._amounts = self._amounts[:, order[first]]
            self._high[axis], self._count = ends, len(ends)
        self._join_at = max(64, 2 * self._count)

    def _touches_merged(self, region: Region) -> bool:
        return any(
            box[axis][0] < high and low < box[axis][1]
            for box in self._clip(region)
            for axis, low, high in self._merged
        )

    def _column(self, row: SegmentAmounts) -> SegmentAmounts:
        """Return a row as a column that can be added to cells."""
        if row.shape != self._amounts.shape[:1] or row.min(initial=0) < 0:
            raise InvariantBroken(f"the row has {len(row)} amounts, or a negative one")
        return np.minimum(row, INFINITE)[:, np.newaxis]


def _lengthen(array: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    longer = np.empty((array.shape[0], room), np.int64)
    longer[:, : array.shape[1]] = array
    return longer


def _group_by_other_axes(boxes: Sequence[Box], axis: int) -> list[list[Box]]:
    """Group boxes that agree on all axes except `axis`."""
    groups: dict[Box, list[Box]] = {}
    for box in boxes:
        groups.setdefault(box[:axis] + box[axis + 1 :], []).append(box)
    return list(groups.values())


def _build_comb(boxes: Sequence[Box], axis: int) -> _Comb:
    """Build the comb of boxes that agree on all axes except `axis`."""
    if len(boxes) == 1:
        return _Comb(boxes[0])
    starts, ends = np.array(sorted(box[axis] for box in boxes), np.int64).T
    extent = (int(starts[0]), int(ends[-1]))
    hull = (*boxes[0][:axis], extent, *boxes[0][axis + 1 :])
    return _Comb(hull, _Teeth(axis, starts, ends))


def _flatten(
    low: BlockPositions, high: BlockPositions, amounts: SegmentAmounts, along: int
) -> tuple[BlockPositions, BlockPositions, SegmentAmounts]:
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
    rows = [np.maximum.reduceat(column[cells[order]], starts) for column in amounts]
    return low[:, order[starts]], high[:, order[starts]], np.array(rows, np.int64)
