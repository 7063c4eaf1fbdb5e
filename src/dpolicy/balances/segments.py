"""Charges → one rule's loss in every block: a step function with only the bounds charges drew.

Blocks that no charge told apart share a cell, a box with one row of amounts. The cells are disjoint
and cover the space, so a check of the cells that a region meets is a check of all of its blocks
(theory 6.1), and its time is that of the bounds drawn, not of the blocks there are. Amounts are
quanta; what reaches INFINITE stays there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.regions import Box, Point, Region

#: Amounts: a row with one per column, or a matrix of columns × cells.
SegmentAmounts = NDArray[np.int64]

#: Numbers of cells; they hold until the next change.
SegmentCells = NDArray[np.intp]

#: Bounds of cells, axes × cells.
BlockPositions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Teeth:
    """Disjoint intervals of one axis, rising."""

    axis: int
    starts: BlockPositions
    ends: BlockPositions


@dataclass(frozen=True, slots=True)
class _Comb:
    """A box; or, if there are teeth, as many boxes that differ on one axis, such as listed values.

    `hull` is then the box around them all.
    """

    hull: Box
    teeth: _Teeth | None = None


class Segments:
    """A rule's loss over a space: `low` and `high` per axis and `amounts` per column, by cell.

    Arrays are longer than needed and grow by doubling. When the cells have doubled, equal
    neighbours are joined: that many charges pay for it.
    """

    __slots__ = ("_amounts", "_count", "_high", "_join_at", "_low", "_merged", "_space")

    #: So many boxes are looked up one by one faster than together.
    _FEW = 8

    def __init__(self, space: Box, row: SegmentAmounts) -> None:
        if not all(low < high for low, high in space) or row.min(initial=0) < 0:
            raise InvariantBroken("a space without points, or a negative amount")
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
        """The whole extent of each axis."""
        return self._space

    @property
    def bytes_used(self) -> int:
        """Of the arrays, with the room to grow."""
        return self._low.nbytes + self._high.nbytes + self._amounts.nbytes

    def add(self, region: Region, row: SegmentAmounts) -> None:
        """Charge the blocks of the region, and no other (theory 6.1); sums are free of order."""
        column = self._column(row)
        if not column.any():
            return
        for comb in self._combs(region):
            cells = self._cut(comb)
            spent = self.columns(cells)
            spent += column  # in place: a fresh matrix costs more than the sum
            self._amounts[:, cells] = np.minimum(spent, INFINITE, out=spent)
        self._join_if_doubled()

    def subtract(self, region: Region, row: SegmentAmounts) -> bool:
        """The exact inverse of a former `add`.

        False, and nothing is changed, if the sum no longer knows its terms: it is saturated, or
        was merged (theory 6.3: a maximum has no inverse). The caller then adds up again.
        """
        column = self._column(row)
        if not column.any():
            return True
        spent = self.columns(self.cells_touching(region))
        if (spent[row > 0] >= INFINITE).any() or self._meets_merged(region):
            return False
        if (spent < column).any():
            raise InvariantBroken("more is taken away from a block than was added")
        for comb in self._combs(region):
            cells = self._cut(comb)  # may move the amounts
            self._amounts[:, cells] -= column
        self._join_if_doubled()
        return True

    def cells_touching(self, region: Region) -> SegmentCells:
        """The cells that share a block with the region, in rising order."""
        combs = self._combs(region)
        if len(combs) == 1:
            return self._meeting(combs[0])
        found = np.zeros(self._count, np.bool_)
        for comb in combs:
            found[self._meeting(comb)] = True
        return np.flatnonzero(found)

    @property
    def amounts(self) -> SegmentAmounts:
        """What is spent, columns × cells; not to be written to."""
        return self._amounts[:, : self._count]

    def columns(self, cells: SegmentCells) -> SegmentAmounts:
        """What is spent in these cells, columns × cells."""
        return self._amounts.take(cells, axis=1)

    def amounts_at(self, point: Point) -> SegmentAmounts:
        """What is spent in one block."""
        cells = self.cells_touching(Region((tuple((x, x + 1) for x in point),)))
        if len(cells) != 1:
            raise InvariantBroken(f"the block {point} lies in {len(cells)} cells")
        return self.columns(cells)[:, 0]

    def first_point(self, cells: SegmentCells, region: Region) -> Point | None:
        """The smallest block of the region in one of these cells, first axis first.

        Free of how the space was cut: a union of boxes has its smallest point at a low corner.
        """
        corners: list[Point] = []
        for box in self._clipped(region):
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
        """Make the steps of an axis from `low` up to `high` one, with the largest of each column.

        Theory 6.3: no block is lowered, and a later charge adds the same to both sides, so what
        the merged step admits, each of its blocks would have admitted.
        """
        start, end = max(low, self._space[axis][0]), min(high, self._space[axis][1])
        if end - start < 2:
            return
        slab = (*self._space[:axis], (start, end), *self._space[axis + 1 :])
        inside = self._cut(_Comb(slab))
        lows, highs, amounts = _flattened(
            self._low[:, inside], self._high[:, inside], self.columns(inside), axis
        )
        lows[axis], highs[axis] = start, end
        outside = np.delete(np.arange(self._count), inside)
        self._low = np.hstack([self._low[:, outside], lows])
        self._high = np.hstack([self._high[:, outside], highs])
        self._amounts = np.hstack([self.columns(outside), amounts])
        self._count = self._amounts.shape[1]
        apart = [m for m in self._merged if m[0] != axis or m[1] < start or m[2] > end]
        self._merged = [*apart, (axis, start, end)]
        self._join()

    def copy(self) -> Segments:
        """The same function, changed by itself from now on."""
        return Segments.from_arrays(self.to_arrays())

    def to_arrays(self) -> dict[str, NDArray[np.int64]]:
        """The function as plain arrays: views, good until the next change."""
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
        """The function that `parts` gave."""
        space = tuple((int(low), int(high)) for low, high in parts["space"])
        made = cls(space, parts["amounts"][:, 0])
        made._low, made._high = parts["low"].copy(), parts["high"].copy()
        made._amounts = parts["amounts"].copy()
        made._count = made._amounts.shape[1]
        made._join_at = max(made._join_at, 2 * made._count)
        made._merged = [(int(a), int(low), int(high)) for a, low, high in parts["merged"]]
        return made

    def _clipped(self, region: Region) -> list[Box]:
        """The boxes of a region, cut to the space."""
        cut = [
            tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, self._space, strict=True))
            for box in region.boxes
        ]
        return [box for box in cut if all(low < high for low, high in box)]

    def _combs(self, region: Region) -> list[_Comb]:
        """The boxes of a region in as few combs as one direction of teeth allows."""
        boxes = self._clipped(region)
        if len(boxes) <= self._FEW:
            return [_Comb(box) for box in boxes]
        axis, groups = min(
            ((axis, _alike(boxes, axis)) for axis in range(len(self._space))),
            key=lambda found: len(found[1]),
        )
        return [_comb(group, axis) for group in groups]

    def _meeting(self, comb: _Comb) -> SegmentCells:
        """The cells that share a block with a comb; bounds of the space need no look."""
        found: NDArray[np.bool_] | None = None
        for axis, (start, end) in enumerate(comb.hull):
            low, high = self._space[axis]
            if end < high:
                below = self._low[axis, : self._count] < end
                found = below if found is None else np.logical_and(found, below, out=found)
            if start > low:
                above = self._high[axis, : self._count] > start
                found = above if found is None else np.logical_and(found, above, out=found)
        cells = np.arange(self._count) if found is None else np.flatnonzero(found)
        return cells if comb.teeth is None else self._bitten(cells, comb.teeth)[0]

    def _bitten(
        self, cells: SegmentCells, teeth: _Teeth
    ) -> tuple[SegmentCells, BlockPositions, BlockPositions]:
        """Those of the cells that meet a tooth, and the bounds of the first that each meets."""
        first = np.searchsorted(teeth.ends, self._low[teeth.axis][cells], side="right")
        met = teeth.starts.take(first, mode="clip") < self._high[teeth.axis][cells]
        met &= first < len(teeth.ends)
        return cells[met], teeth.starts[first[met]], teeth.ends[first[met]]

    def _cut(self, comb: _Comb) -> SegmentCells:
        """Split the cells that a bound runs through; the cells that now fill the comb."""
        cells = self._meeting(comb)
        for axis, (start, end) in enumerate(comb.hull):
            if comb.teeth is None or axis != comb.teeth.axis:
                self._split_off(cells[self._low[axis][cells] < start], axis, start, below=True)
                self._split_off(cells[self._high[axis][cells] > end], axis, end, below=False)
        return cells if comb.teeth is None else self._bite(cells, comb.teeth)

    def _bite(self, cells: SegmentCells, teeth: _Teeth) -> SegmentCells:
        """Split cells at the teeth they meet, tooth after tooth; the cells that now fill them."""
        filled = []
        while len(cells):
            cells, starts, ends = self._bitten(cells, teeth)
            below = self._low[teeth.axis][cells] < starts
            self._split_off(cells[below], teeth.axis, starts[below], below=True)
            above, count = self._high[teeth.axis][cells] > ends, self._count
            self._split_off(cells[above], teeth.axis, ends[above], below=False)
            filled.append(cells)
            cells = np.arange(count, self._count)
        return np.concatenate(filled)

    def _split_off(
        self, cells: SegmentCells, axis: int, at: int | BlockPositions, *, below: bool
    ) -> None:
        """Give the part of each cell below `at`, or else from `at` on, a cell of its own."""
        start, end = self._count, self._count + len(cells)
        if start == end:
            return
        if end > self._amounts.shape[1]:
            room = max(end, 2 * self._amounts.shape[1])
            self._low, self._high = _longer(self._low, room), _longer(self._high, room)
            self._amounts = _longer(self._amounts, room)
        for array in (self._low, self._high, self._amounts):
            array[:, start:end] = array[:, cells]
        outer, inner = (self._high, self._low) if below else (self._low, self._high)
        outer[axis, start:end] = at
        inner[axis, cells] = at
        self._count = end

    def _join_if_doubled(self) -> None:
        if self._count >= self._join_at:
            self._join()

    def _join(self) -> None:
        """Make one cell of neighbours with the same row, along each axis in turn."""
        axes = range(len(self._space))
        for axis in axes:
            others = [other for other in axes if other != axis]
            used = slice(self._count)
            order = np.lexsort((self._low[axis, used], *(self._low[a, used] for a in others)))
            left, right = order[:-1], order[1:]
            same = self._high[axis][left] == self._low[axis][right]
            for array in (self._low[others], self._high[others], self._amounts):
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

    def _meets_merged(self, region: Region) -> bool:
        return any(
            box[axis][0] < high and low < box[axis][1]
            for box in self._clipped(region)
            for axis, low, high in self._merged
        )

    def _column(self, row: SegmentAmounts) -> SegmentAmounts:
        """A row as a column, ready to be added to cells."""
        if row.shape != self._amounts.shape[:1] or row.min(initial=0) < 0:
            raise InvariantBroken(f"a row of {len(row)} amounts, or a negative one")
        return np.minimum(row, INFINITE)[:, np.newaxis]


def _longer(array: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    longer = np.empty((array.shape[0], room), np.int64)
    longer[:, : array.shape[1]] = array
    return longer


def _alike(boxes: Sequence[Box], axis: int) -> list[list[Box]]:
    """Boxes grouped by all of their axes but one."""
    groups: dict[Box, list[Box]] = {}
    for box in boxes:
        groups.setdefault(box[:axis] + box[axis + 1 :], []).append(box)
    return list(groups.values())


def _comb(boxes: Sequence[Box], axis: int) -> _Comb:
    """Boxes that agree on all axes but one → their comb."""
    if len(boxes) == 1:
        return _Comb(boxes[0])
    starts, ends = np.array(sorted(box[axis] for box in boxes), np.int64).T
    around = (int(starts[0]), int(ends[-1]))
    hull = (*boxes[0][:axis], around, *boxes[0][axis + 1 :])
    return _Comb(hull, _Teeth(axis, starts, ends))


def _flattened(
    low: BlockPositions, high: BlockPositions, amounts: SegmentAmounts, along: int
) -> tuple[BlockPositions, BlockPositions, SegmentAmounts]:
    """Cells, seen along one axis → disjoint ones with the largest of each column.

    One of the other axes after the other, every cell is cut at the bounds of those that agree with
    it so far, fewest bounds first: what agrees on all axes in the end is one group.
    """
    axes = sorted(set(range(len(low))) - {along}, key=lambda axis: len(np.unique(low[axis])))
    cells = np.arange(low.shape[1])
    group = np.zeros_like(cells)
    for axis in axes:
        values, ranks = np.unique([low[axis], high[axis]], return_inverse=True)
        starts, ends = (group * len(values) + rank for rank in ranks.reshape(2, -1))
        bounds = np.unique(np.concatenate([starts, ends]))
        first, last = np.searchsorted(bounds, starts), np.searchsorted(bounds, ends)
        times = last - first
        group = np.repeat(last - np.cumsum(times), times) + np.arange(times.sum())
        cells, low, high = (np.repeat(a, times, axis=-1) for a in (cells, low, high))
        low[axis], high[axis] = (values[bounds[at] % len(values)] for at in (group, group + 1))
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    rows = [np.maximum.reduceat(column[cells[order]], starts) for column in amounts]
    return low[:, order[starts]], high[:, order[starts]], np.array(rows, np.int64)
