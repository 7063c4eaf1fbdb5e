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
    """A row for every block of a space."""

    def __init__(self, space: Box, row: Row) -> None:
        self.rows: dict[Point, Row] = {point: list(row) for point in points([space])}

    def add(self, where: set[Point], row: Row) -> None:
        """Add a row to some blocks."""
        for point in where & self.rows.keys():
            self.rows[point] = [
                min(a + b, INFINITE) for a, b in zip(self.rows[point], row, strict=True)
            ]

    def take_away(self, where: set[Point], row: Row) -> None:
        """Subtract a row from some blocks."""
        for point in where & self.rows.keys():
            self.rows[point] = [a - b for a, b in zip(self.rows[point], row, strict=True)]

    def saturated(self, where: set[Point], row: Row) -> bool:
        """Return whether a block is saturated in a column of the row."""
        rows = [self.rows[point] for point in where & self.rows.keys()]
        return any(a >= INFINITE and b > 0 for r in rows for a, b in zip(r, row, strict=True))

    def breaking(self, where: set[Point], breaks: Callable[[Row], bool]) -> set[Point]:
        """Return the blocks in which a rule is exceeded."""
        return {point for point in where & self.rows.keys() if breaks(self.rows[point])}

    def worst(self, where: Iterable[Point]) -> Row:
        """Return the maximum of each column over some blocks."""
        return [max(column) for column in zip(*(self.rows[point] for point in where), strict=True)]

    def merge(self, axis: int, low: int, high: int) -> None:
        """Set the blocks that differ only on `axis` from `low` to `high` to their maximum."""
        slab = [point for point in self.rows if low <= point[axis] < high]
        alike: dict[Point, list[Point]] = {}
        for point in slab:
            alike.setdefault(point[:axis] + point[axis + 1 :], []).append(point)
        for group in alike.values():
            worst = self.worst(group)
            for point in group:
                self.rows[point] = worst
