"""Rule grids: the losses of rules with the same granularity in one step function.

A region touches the same blocks of all rules with the same granularity. A grid keeps these rules
together, so that one cut and one lookup serve all of them. A charge cuts the cells of every rule of
a grid, also of rules that it does not charge; a large grid is therefore split where charges touch
less than half of its rules (decision 0026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.segments import SegmentAmounts, Segments
from dpolicy.balances.touched_cells import SegmentCells
from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Box

#: Numbers of rules.
RuleNumbers = NDArray[np.intp]

#: A grid with at most this number of amounts (8 MiB) may hold rules that charges rarely touch
#: together.
MAX_SHARED_AMOUNTS = 2**20

#: Grid of a rule that has the same loss in every block.
NO_GRID = -1


@dataclass(slots=True, eq=False)
class RuleGrid:
    """Losses of rules with the same granularity. Mutable; owned by the `RuleGrids` that hold it.

    `granularity` is its position in `RuleGranularities`. `rules` are in ascending order; `segments`
    has `width` columns for each of them, in this order.
    """

    granularity: int
    rules: RuleNumbers
    width: int
    segments: Segments

    @property
    def amount_count(self) -> int:
        """Number of amounts in all cells."""
        return len(self.segments) * len(self.rules) * self.width

    def is_sparse(self, rules: int) -> bool:
        """Return whether a charge to this number of its rules splits the grid."""
        return self.amount_count > MAX_SHARED_AMOUNTS and 2 * rules < len(self.rules)

    def amounts_in(self, cells: SegmentCells, places: NDArray[np.intp]) -> LossArray:
        """Return the losses of rules in cells, cells × rules × columns.

        `places` are positions in `rules`, in ascending order.
        """
        if len(places) == len(self.rules):
            return self.segments.rows(cells).reshape(len(cells), len(self.rules), self.width)
        stored = self.segments.stored_amounts.reshape(-1, len(self.rules), self.width)
        losses: LossArray = stored[cells[:, np.newaxis], places]
        return losses

    def amounts_for(self, place: int) -> LossArray:
        """Return the losses of one rule in all cells, columns × cells. A view."""
        return self.segments.amounts[place * self.width : (place + 1) * self.width]

    def segments_for(self, place: int) -> Segments:
        """Return the loss of one rule as separate segments with equal neighbours joined."""
        return self.segments.with_columns(self._columns(np.array([place])))

    def part(self, places: NDArray[np.intp]) -> RuleGrid:
        """Return a new grid with some of the rules."""
        segments = self.segments.with_columns(self._columns(places))
        return RuleGrid(self.granularity, self.rules[places], self.width, segments)

    def append(self, rules: RuleNumbers, losses: LossArray) -> None:
        """Add rules that have the same loss in every block; `losses` has one row per rule."""
        all_rules = np.concatenate([self.rules, rules])
        order = np.argsort(all_rules)
        self.rules = all_rules[order]
        self.segments.append_columns(losses.reshape(-1), self._columns(order))

    def row(self, places: NDArray[np.intp], losses: LossArray) -> SegmentAmounts:
        """Return a row of the step function: the losses of some rules, and 0 for the others."""
        if len(places) == len(self.rules):
            return losses.reshape(-1)
        row = np.zeros((len(self.rules), self.width), np.int64)
        row[places] = losses
        return row.reshape(-1)

    def copy(self) -> RuleGrid:
        """Return an independent copy."""
        return RuleGrid(self.granularity, self.rules.copy(), self.width, self.segments.copy())

    def to_arrays(self) -> dict[str, NDArray[np.int64]]:
        """Return the grid as plain arrays: views, valid until the next change."""
        shape = np.array([self.granularity, self.width], np.int64)
        return {**self.segments.to_arrays(), "rules": self.rules.astype(np.int64), "shape": shape}

    @staticmethod
    def from_arrays(parts: Mapping[str, NDArray[np.int64]]) -> RuleGrid:
        """Build a grid from the arrays of `to_arrays`."""
        granularity, width = parts["shape"].tolist()
        rules = parts["rules"].astype(np.intp)
        return RuleGrid(granularity, rules, width, Segments.from_arrays(parts))

    def _columns(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        return (places[:, np.newaxis] * self.width + np.arange(self.width)).reshape(-1)


@dataclass(frozen=True, slots=True, eq=False)
class GridPart:
    """Rules of a charge that lie in one grid: positions in the charge, and places in the grid."""

    grid: RuleGrid
    positions: NDArray[np.intp]
    places: NDArray[np.intp]


@dataclass(slots=True, eq=False)
class RuleGrids:
    """Grids of the rules of a section that have segments. Mutable; owned by a `Balances`.

    `grid_by_rule` and `place_by_rule` are by rule number. `layout` is another object after each
    change of the rules of a grid.
    """

    space: Box
    grid_by_rule: NDArray[np.int32]
    place_by_rule: NDArray[np.int32]
    grids: list[RuleGrid] = field(default_factory=list)
    layout: object = field(default_factory=object)

    @staticmethod
    def empty(space: Box, rules: int) -> RuleGrids:
        """Return no grids for a number of rules."""
        return RuleGrids(space, np.full(rules, NO_GRID, np.int32), np.zeros(rules, np.int32))

    def copy(self) -> RuleGrids:
        """Return an independent copy."""
        grids = [grid.copy() for grid in self.grids]
        return RuleGrids(self.space, self.grid_by_rule.copy(), self.place_by_rule.copy(), grids)

    def contain(self, numbers: RuleNumbers) -> NDArray[np.bool_]:
        """Return which rules are in a grid."""
        is_inside: NDArray[np.bool_] = self.grid_by_rule[numbers] != NO_GRID
        return is_inside

    def segments_for(self, number: int) -> Segments:
        """Return the loss of a rule in a grid as separate segments."""
        grid = self.grids[int(self.grid_by_rule[number])]
        return grid.segments_for(int(self.place_by_rule[number]))

    def parts(self, numbers: RuleNumbers) -> Iterator[GridPart]:
        """Yield the grids of rules that are all in grids."""
        grid_numbers = self.grid_by_rule[numbers]
        for number in sorted(set(grid_numbers.tolist())):
            if number == NO_GRID:
                raise InvariantBroken("a rule without segments is in no grid")
            positions = np.flatnonzero(grid_numbers == number)
            places = self.place_by_rule[numbers[positions]].astype(np.intp)
            yield GridPart(self.grids[number], positions, places)

    def insert(self, granularity: int, numbers: RuleNumbers, losses: LossArray) -> None:
        """Store a new grid of rules with the same loss in every block, one row per rule."""
        segments = Segments(self.space, losses.reshape(-1))
        self.store(RuleGrid(granularity, numbers, losses.shape[1], segments))

    def store(self, grid: RuleGrid) -> None:
        """Store a new grid."""
        self.grids.append(grid)
        self._record_places(len(self.grids) - 1)

    def append(
        self, granularity: int, numbers: RuleNumbers, losses: LossArray, near: RuleNumbers
    ) -> None:
        """Add rules to a grid that has one of the rules `near`; to a new grid if that is large."""
        for number in sorted(set(self.grid_by_rule[near].tolist()) - {NO_GRID}):
            grid = self.grids[number]
            added = len(grid.segments) * losses.size
            if grid.granularity == granularity and grid.amount_count + added <= MAX_SHARED_AMOUNTS:
                grid.append(numbers, losses)
                self._record_places(number)
                return
        self.insert(granularity, numbers, losses)

    def split_sparse(self, numbers: RuleNumbers) -> None:
        """Split each large grid of which `numbers` are less than half of the rules."""
        grid_numbers = self.grid_by_rule[numbers]
        for number in sorted(set(grid_numbers.tolist())):
            grid = self.grids[number]
            places = self.place_by_rule[numbers[grid_numbers == number]].astype(np.intp)
            if not grid.is_sparse(len(places)):
                continue
            self.store(grid.part(places))
            self.grids[number] = grid.part(np.delete(np.arange(len(grid.rules)), places))
            self._record_places(number)

    def _record_places(self, number: int) -> None:
        rules = self.grids[number].rules
        self.layout = object()
        self.grid_by_rule[rules] = number
        self.place_by_rule[rules] = np.arange(len(rules))
