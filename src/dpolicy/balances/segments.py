"""Segments: the loss of one rule, or of rules with the same blocks, as one step function.

The function has only the borders that charges created. Blocks that all charges treat the same share
a cell, which is a box with one row of amounts per rule. The cells are disjoint and cover the space,
so a check of the cells that a region touches is a check of all its blocks (theory 6.1). The time of
a check depends on the number of borders, not on the number of blocks. Amounts are in quanta; an
amount that reaches INFINITE stays there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.combs import Comb, Teeth, clip_boxes, count_cuts, region_combs
from dpolicy.balances.flattened_cells import flatten_cells
from dpolicy.balances.touched_cells import (
    BlockPositions,
    SegmentCells,
    TouchedCells,
    key_strides,
    point_keys,
    unite_parts,
)
from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.regions import Box, Point, Region

#: Amounts: one row of columns, or a matrix of cells × columns or columns × cells.
SegmentAmounts = NDArray[np.int64]

#: Number of pairs of cells that `_join` compares in one operation.
_PAIRS_COMPARED = 256


class Segments:
    """Loss of rules over a space. Mutable; owned by the `Balances` that holds it.

    Each cell has `low` and `high` per axis and `amounts` per column. A function for several rules
    has the columns of each rule, one rule after the other. The arrays are longer than needed and
    grow by doubling. Each time the number of cells has doubled, equal neighbours are joined, so the
    cost of joining is amortised over the charges.
    """

    __slots__ = (
        "_amounts",
        "_count",
        "_high",
        "_join_at",
        "_low",
        "_merged",
        "_space",
        "_strides",
        "layout",
    )

    #: Up to this number of boxes, one lookup per box is faster than combs.
    _MAX_SINGLE_LOOKUPS = 8

    def __init__(self, space: Box, row: SegmentAmounts) -> None:
        if not all(low < high for low, high in space) or row.min(initial=0) < 0:
            raise InvariantBroken("the space is empty, or an amount is negative")
        #: Another object after each change of cells or columns: cell numbers are valid until then.
        self.layout = object()
        self._space = space
        self._strides = key_strides(space)
        self._low = np.array([[low] for low, _ in space], np.int64).reshape(len(space), 1)
        self._high = np.array([[high] for _, high in space], np.int64).reshape(len(space), 1)
        self._amounts = np.minimum(np.array(row, np.int64).reshape(1, -1), INFINITE)
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
        row = self._check_row(row)
        charged = np.flatnonzero(row)
        if not len(charged):
            return
        is_sparse = 2 * len(charged) < len(row)
        for comb in self._combs(region):
            cells = self._cut(comb)
            if is_sparse:
                at = cells[:, np.newaxis], charged
                self._amounts[at] = np.minimum(self._amounts[at] + row[charged], INFINITE)
                continue
            spent = self.rows(cells)
            spent += row  # in place: a new matrix costs more than the sum
            self._amounts[cells] = np.minimum(spent, INFINITE, out=spent)
        self._join_if_doubled()

    def subtract(self, region: Region, row: SegmentAmounts) -> bool:
        """Undo an earlier `add`.

        Return False, without changes, if a sum is saturated or was merged (theory 6.3: a maximum
        has no inverse); the caller must then recompute it.
        """
        row = self._check_row(row)
        if not row.any():
            return True
        spent = self.rows(self.cells_touching(region))
        if (spent[:, row > 0] >= INFINITE).any() or self._touches_merged(region):
            return False
        if (spent < row).any():
            raise InvariantBroken("more is subtracted from a block than was added")
        for comb in self._combs(region):
            cells = self._cut(comb)  # may reallocate the amounts
            self._amounts[cells] -= row
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
        return self._amounts[: self._count].T

    @property
    def stored_amounts(self) -> SegmentAmounts:
        """Amounts, cells × columns, with unused rows at the end. The kernel adds to this array."""
        return self._amounts

    def columns(self, cells: SegmentCells) -> SegmentAmounts:
        """Return a copy of the amounts of these cells, columns × cells."""
        return self.rows(cells).T

    def rows(self, cells: SegmentCells) -> SegmentAmounts:
        """Return a copy of the amounts of these cells, cells × columns."""
        return self._amounts.take(cells, axis=0)

    def amounts_at(self, point: Point) -> SegmentAmounts:
        """Return the amounts of the block that contains a point."""
        cells = self.cells_touching(Region((tuple((x, x + 1) for x in point),)))
        if len(cells) != 1:
            raise InvariantBroken(f"the point {point} lies in {len(cells)} cells instead of one")
        return self.columns(cells)[:, 0]

    def touched_cells(self, region: Region) -> TouchedCells:
        """Return the cells that share a block with the region, and the smallest point in each.

        The smallest point of several cells does not depend on how the space was cut.
        """
        parts = [self._touched_by_comb(comb) for comb in self._combs(region)]
        if not parts:
            parts = [(np.empty(0, np.intp), np.empty((len(self._space), 0), np.int64))]
        cells, points = parts[0] if len(parts) == 1 else unite_parts(parts)
        return TouchedCells(cells, points, point_keys(points, self._strides))

    def _touched_by_comb(self, comb: Comb) -> tuple[SegmentCells, BlockPositions]:
        cells = self._touching(comb)
        starts = np.array([start for start, _ in comb.hull], np.int64)[:, np.newaxis]
        if comb.teeth is None:
            return cells, np.maximum(self._low.take(cells, axis=1), starts)
        _, tooth_starts, _ = self._touching_teeth(cells, comb.teeth)
        points = np.maximum(self._low.take(cells, axis=1), starts)
        axis = comb.teeth.axis
        np.maximum(points[axis], tooth_starts, out=points[axis])
        return cells, points

    def is_cut_along(self, region: Region) -> bool:
        """Return whether no cell lies only in part in the region, so that `add` splits none."""
        return all(self._is_cut_along(comb) for comb in self._combs(region))

    def _is_cut_along(self, comb: Comb) -> bool:
        cells = self._touching(comb)
        sides = np.array(comb.hull, np.int64).reshape(-1, 2, 1)
        starts, ends = np.repeat(sides, len(cells), axis=2).transpose(1, 0, 2)
        if comb.teeth is not None:
            _, *tooth = self._touching_teeth(cells, comb.teeth)
            starts[comb.teeth.axis], ends[comb.teeth.axis] = tooth
        low, high = self._low.take(cells, axis=1), self._high.take(cells, axis=1)
        return bool((low >= starts).all() and (high <= ends).all())

    def count_cuts(self, region: Region) -> int:
        """Return about how many cells `add` makes: 0 if it splits none."""
        touched = ((comb, self._touching(comb)) for comb in self._combs(region))
        return sum(
            count_cuts(comb, self._low.take(cells, axis=1), self._high.take(cells, axis=1))
            for comb, cells in touched
        )

    def merge(self, axis: int, low: int, high: int) -> None:
        """Merge the steps of an axis from `low` to `high` (exclusive); keep the maximum per column.

        Theory 6.3: no amount decreases, and a later charge adds the same to the merged step and to
        each of its blocks. A release that the merged step allows, each block would have allowed.
        """
        start, end = max(low, self._space[axis][0]), min(high, self._space[axis][1])
        if end - start < 2:
            return
        slab = (*self._space[:axis], (start, end), *self._space[axis + 1 :])
        inside = self._cut(Comb(slab))
        lows, highs, amounts = flatten_cells(
            self._low[:, inside], self._high[:, inside], self.rows(inside), axis
        )
        lows[axis], highs[axis] = start, end
        outside = np.delete(np.arange(self._count), inside)
        self._low = np.hstack([self._low[:, outside], lows])
        self._high = np.hstack([self._high[:, outside], highs])
        self._amounts = np.vstack([self.rows(outside), amounts])
        self._count = len(self._amounts)
        outside_merges = [m for m in self._merged if m[0] != axis or m[1] < start or m[2] > end]
        self._merged = [*outside_merges, (axis, start, end)]
        self.layout = object()
        self._join()

    def copy(self) -> Segments:
        """Return an independent copy."""
        return Segments.from_arrays(self.to_arrays())

    def with_columns(self, columns: NDArray[np.intp]) -> Segments:
        """Return a copy with these columns only; equal neighbours are joined."""
        arrays = self.to_arrays()
        part = Segments.from_arrays({**arrays, "amounts": arrays["amounts"].take(columns, axis=0)})
        part._join()
        return part

    def append_columns(self, row: SegmentAmounts, order: NDArray[np.intp]) -> None:
        """Add columns with the same amount in every cell, then put all columns in an order."""
        more = np.broadcast_to(np.minimum(row, INFINITE), (len(self._amounts), len(row)))
        self._amounts = np.hstack([self._amounts, more]).take(order, axis=1)
        self.layout = object()

    def to_arrays(self) -> dict[str, NDArray[np.int64]]:
        """Return the function as plain arrays: views, valid until the next change."""
        used = slice(self._count)
        return {
            "space": np.array(self._space, np.int64).reshape(-1, 2),
            "low": self._low[:, used],
            "high": self._high[:, used],
            "amounts": self.amounts,
            "merged": np.array(self._merged, np.int64).reshape(-1, 3),
        }

    @classmethod
    def from_arrays(cls, parts: Mapping[str, NDArray[np.int64]]) -> Segments:
        """Build segments from the arrays of `to_arrays`."""
        space = tuple((int(low), int(high)) for low, high in parts["space"])
        segments = cls(space, parts["amounts"][:, 0])
        segments._low, segments._high = parts["low"].copy(), parts["high"].copy()
        segments._amounts = parts["amounts"].T.copy()
        segments._count = len(segments._amounts)
        segments._join_at = max(segments._join_at, 2 * segments._count)
        segments._merged = [(int(a), int(low), int(high)) for a, low, high in parts["merged"]]
        return segments

    def _combs(self, region: Region) -> tuple[Comb, ...]:
        """Return the boxes of a region as combs."""
        return region_combs(region, self._space, self._MAX_SINGLE_LOOKUPS)

    def _touching(self, comb: Comb) -> SegmentCells:
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
        self, cells: SegmentCells, teeth: Teeth
    ) -> tuple[SegmentCells, BlockPositions, BlockPositions]:
        """Return the cells that touch a tooth, and the bounds of the first tooth of each."""
        first = np.searchsorted(teeth.ends, self._low[teeth.axis][cells], side="right")
        touching = teeth.starts.take(first, mode="clip") < self._high[teeth.axis][cells]
        touching &= first < len(teeth.ends)
        return cells[touching], teeth.starts[first[touching]], teeth.ends[first[touching]]

    def _cut(self, comb: Comb) -> SegmentCells:
        """Split cells at the borders of the comb; return the cells that fill it."""
        cells = self._touching(comb)
        for axis, (start, end) in enumerate(comb.hull):
            if comb.teeth is None or axis != comb.teeth.axis:
                self._split_off(cells[self._low[axis][cells] < start], axis, start, below=True)
                self._split_off(cells[self._high[axis][cells] > end], axis, end, below=False)
        return cells if comb.teeth is None else self._cut_teeth(cells, comb.teeth)

    def _cut_teeth(self, cells: SegmentCells, teeth: Teeth) -> SegmentCells:
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
        if end > len(self._amounts):
            room = max(end, 2 * len(self._amounts))
            self._low, self._high = _lengthen(self._low, room), _lengthen(self._high, room)
            longer = np.empty((room, self._amounts.shape[1]), np.int64)
            longer[:start] = self._amounts[:start]
            self._amounts = longer
        for array in (self._low, self._high):
            array[:, start:end] = array[:, cells]
        self._amounts[start:end] = self._amounts[cells]
        outer, inner = (self._high, self._low) if below else (self._low, self._high)
        outer[axis, start:end] = border
        inner[axis, cells] = border
        self._count = end
        self.layout = object()

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
            for array in (self._low[other_axes], self._high[other_axes]):
                for line in array:
                    same[same] = line[left[same]] == line[right[same]]
            pairs = np.flatnonzero(same)
            for start in range(0, len(pairs), _PAIRS_COMPARED):
                part = pairs[start : start + _PAIRS_COMPARED]
                same[part] = (self.rows(left[part]) == self.rows(right[part])).all(axis=1)
            if not same.any():
                continue
            first, last = np.append(True, ~same), np.append(~same, True)
            ends = self._high[axis][order[last]]
            self._low = self._low.take(order[first], axis=1)
            self._high = self._high.take(order[first], axis=1)
            self._amounts = self.rows(order[first])
            self._high[axis], self._count = ends, len(ends)
            self.layout = object()
        self._join_at = max(64, 2 * self._count)

    def _touches_merged(self, region: Region) -> bool:
        return any(
            box[axis][0] < high and low < box[axis][1]
            for box in clip_boxes(region, self._space)
            for axis, low, high in self._merged
        )

    def _check_row(self, row: SegmentAmounts) -> SegmentAmounts:
        """Return a row that can be added to cells."""
        if row.shape != self._amounts.shape[1:] or row.min(initial=0) < 0:
            raise InvariantBroken(f"the row has {len(row)} amounts, or a negative one")
        saturated: SegmentAmounts = np.minimum(row, INFINITE)
        return saturated


def _lengthen(array: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    longer = np.empty((array.shape[0], room), np.int64)
    longer[:, : array.shape[1]] = array
    return longer
