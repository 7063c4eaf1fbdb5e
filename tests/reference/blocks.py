"""Naive twin of `dpolicy.balances.segments`: the loss of a rule, block by block.

Every block of a small space has a separate row, and a set of blocks is a set of points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.regions import Box, Point

Row = list[int]


def points(boxes: Iterable[Box]) -> set[Point]:
    """Return every block of a union of boxes."""
    return {point for box in boxes for point in product(*(range(*interval) for interval in box))}


class Blocks:
    """Table with one row of amounts per block of a space."""

    def __init__(self, space: Box, row: Row) -> None:
        self.rows: dict[Point, Row] = {point: list(row) for point in points([space])}

    def add(self, selected: set[Point], row: Row) -> None:
        """Add a row to the selected blocks."""
        for point in selected & self.rows.keys():
            self.rows[point] = [
                min(a + b, INFINITE) for a, b in zip(self.rows[point], row, strict=True)
            ]

    def subtract(self, selected: set[Point], row: Row) -> None:
        """Subtract a row from the selected blocks."""
        for point in selected & self.rows.keys():
            self.rows[point] = [a - b for a, b in zip(self.rows[point], row, strict=True)]

    def is_saturated(self, selected: set[Point], row: Row) -> bool:
        """Return whether a selected block is saturated in a column of the row."""
        rows = [self.rows[point] for point in selected & self.rows.keys()]
        return any(a >= INFINITE and b > 0 for r in rows for a, b in zip(r, row, strict=True))

    def exceeded_blocks(self, selected: set[Point], exceeds: Callable[[Row], bool]) -> set[Point]:
        """Return the selected blocks whose row exceeds a rule."""
        return {point for point in selected & self.rows.keys() if exceeds(self.rows[point])}

    def largest_amounts(self, selected: Iterable[Point]) -> Row:
        """Return the maximum of each column over the selected blocks."""
        return [
            max(column) for column in zip(*(self.rows[point] for point in selected), strict=True)
        ]

    def merge(self, axis: int, low: int, high: int) -> None:
        """Set the blocks that differ only on `axis` from `low` to `high` to their maximum."""
        slab = [point for point in self.rows if low <= point[axis] < high]
        groups: dict[Point, list[Point]] = {}
        for point in slab:
            groups.setdefault(point[:axis] + point[axis + 1 :], []).append(point)
        for group in groups.values():
            largest = self.largest_amounts(group)
            for point in group:
                self.rows[point] = largest
