"""Balances: the loss charged to every rule of a section, with exact addition and subtraction.

Most rules are charged uniformly and need one row. Infinite terms are counted separately from the
finite sum, so that a void restores the previous balance exactly. A rule gets segments when a
release touches some of its blocks but not all; rules with the same granularity share a grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.granularities import RuleGranularities
from dpolicy.balances.rule_grids import GridPart, RuleGrids, RuleNumbers
from dpolicy.balances.segments import Segments
from dpolicy.errors import InvalidValue, InvariantBroken
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.privacy.units.calendar import block_index, block_start
from dpolicy.releases.regions import Box, Region

#: Limit of the disjoint regions into which the mechanisms of one release split a rule.
MAX_DISJOINT_CHARGES = 512

#: A release that cuts cells leaves about this number of cells, and of amounts (1 GiB), in a grid.
MAX_GRID_CELLS, MAX_GRID_AMOUNTS = 2**17, 2**27


@dataclass(frozen=True, slots=True, eq=False)
class Charge:
    """Cost of mechanisms with the same region: one row per kept rule of a section.

    `region` is None for the whole partition space. Time steps before the day `cutoff` are collapsed
    (theory 6.3).
    """

    rule_numbers: RuleNumbers
    rows: LossArray
    region: Region | None = None
    cutoff: int = 0


@dataclass(slots=True, eq=False)
class Balances:
    """Loss charged to every rule of a section, by rule number. Mutable.

    `SpendingTotals` owns the balances of a ledger, and only it changes them. Other code reads them,
    or changes its own `copy`. `add`, `subtract` and `collapse_time` write into the arrays.
    """

    granularities: RuleGranularities
    finite: LossArray
    infinite: NDArray[np.int32]
    grids: RuleGrids

    @staticmethod
    def zero(granularities: RuleGranularities, width: int) -> Balances:
        """Return balances of zero; `width` is the number of columns of a loss row."""
        rules = len(granularities.position_by_rule)
        return Balances(
            granularities,
            np.zeros((rules, width), np.int64),
            np.zeros((rules, width), np.int32),
            RuleGrids.empty(granularities.space.box, rules),
        )

    def copy(self) -> Balances:
        """Return an independent copy."""
        return Balances(
            self.granularities, self.finite.copy(), self.infinite.copy(), self.grids.copy()
        )

    def uniform_losses(self, numbers: RuleNumbers) -> LossArray:
        """Return the losses of rules without segments, one row per rule."""
        losses = self.finite[numbers]
        losses[self.infinite[numbers] > 0] = INFINITE
        return losses

    def needs_segments(self, charge: Charge) -> NDArray[np.bool_]:
        """Return which rules of a charge have segments, or need them after this charge."""
        partial = self.granularities.touches_partially(charge.region, charge.rule_numbers)
        return partial | self.grids.contain(charge.rule_numbers)

    def segments_for(self, number: int) -> Segments:
        """Return a copy of the segments of a rule; a single cell if it is charged uniformly."""
        numbers = np.array([number])
        if self.grids.contain(numbers)[0]:
            return self.grids.segments_for(number)
        return Segments(self.granularities.space.box, self.uniform_losses(numbers)[0])

    def ensure_few_cuts(self, charges: Sequence[Charge]) -> None:
        """Raise `InvalidValue` (R008) if new charges cut a grid into too many cells.

        The number is an estimate. A charge along existing borders cuts nothing and is accepted.
        """
        cuts: dict[int, int] = {}
        for charge in charges:
            segmented = self.grids.contain(charge.rule_numbers)
            for part in self.grids.parts(charge.rule_numbers[segmented]):
                grid, added = part.grid, part.grid.segments.count_cuts(self._blocks(charge, part))
                cuts[id(grid)] = cuts.get(id(grid), 0) + added
                cells = len(grid.segments) + cuts[id(grid)]
                amounts = cells * len(grid.rules) * grid.width
                if added and (cells > MAX_GRID_CELLS or amounts > MAX_GRID_AMOUNTS):
                    raise InvalidValue(
                        "R008",
                        "the balances have too many different regions; "
                        "use the borders of earlier releases, or fewer partitions",
                    )

    def add(self, charge: Charge, count: int) -> None:
        """Charge the rules for `count` releases with this charge."""
        segmented = self.needs_segments(charge)
        if segmented.any():
            self._add_to_grids(_select_rows(charge, segmented, count))
        numbers, rows = charge.rule_numbers[~segmented], charge.rows[~segmented]
        infinite = rows >= INFINITE
        terms = np.where(infinite, 0, _multiply_saturating(rows, count))
        self.finite[numbers] = np.minimum(self.finite[numbers] + terms, INFINITE)
        self.infinite[numbers] += count * infinite

    def _add_to_grids(self, charge: Charge) -> None:
        numbers = charge.rule_numbers
        self._enter_grids(numbers)
        self.grids.split_sparse(numbers)
        for part in self.grids.parts(numbers):
            row = part.grid.row(part.places, charge.rows[part.positions])
            part.grid.segments.add(self._blocks(charge, part), row)

    def _enter_grids(self, numbers: RuleNumbers) -> None:
        """Put the rules that are charged uniformly into grids of their granularity."""
        new = numbers[~self.grids.contain(numbers)]
        positions = self.granularities.position_by_rule[new]
        for position in sorted(set(positions.tolist())):
            rules = new[positions == position]
            self.grids.append(position, rules, self.uniform_losses(rules), near=numbers)

    def _blocks(self, charge: Charge, part: GridPart) -> Region:
        return self.granularities.blocks_at(charge.region, part.grid.granularity, charge.cutoff)

    def subtract(self, charge: Charge, count: int) -> bool:
        """Undo the charge of `count` releases.

        Return False if a sum is saturated or was merged; the caller must then recompute the
        balances from zero, because some rules may have been changed already.
        """
        segmented = self.needs_segments(charge)
        numbers, rows = charge.rule_numbers[~segmented], charge.rows[~segmented]
        if (self.finite[numbers] >= INFINITE).any():
            return False
        in_grids = _select_rows(charge, segmented, count)
        for part in self.grids.parts(in_grids.rule_numbers):
            row = part.grid.row(part.places, in_grids.rows[part.positions])
            if not part.grid.segments.subtract(self._blocks(charge, part), row):
                return False
        infinite = rows >= INFINITE
        self.finite[numbers] -= np.where(infinite, 0, rows * count)
        self.infinite[numbers] -= count * infinite
        if (self.finite[numbers] < 0).any() or (self.infinite[numbers] < 0).any():
            raise InvariantBroken("more is subtracted from a rule than was added")
        return True

    def collapse_time(self, cutoff: int) -> None:
        """Merge time steps before the day `cutoff`; a merged block keeps the largest loss.

        Theory 6.3. A later charge to a part of a merged block is a charge to the whole block.
        """
        period = self.granularities.collapsed_period
        for grid in self.grids.grids:
            if not self.granularities.collapses_at(grid.granularity):
                continue
            segments = grid.segments
            time = len(segments.space) - 1
            bounds = np.unique(segments.to_arrays()["low"][time])
            old = bounds[(bounds < cutoff) & (bounds > segments.space[time][0])].tolist()
            inner = (day for day in old if block_start(period, block_index(period, day)) != day)
            for block in dict.fromkeys(block_index(period, day) for day in inner):
                segments.merge(time, block_start(period, block), block_start(period, block + 1))


def disjoint_charges(
    space: Box, charges: Iterable[tuple[Region, LossArray]]
) -> list[tuple[Region, LossArray]]:
    """Split the charges of one rule into disjoint regions with summed costs.

    Raise `InvalidValue` (R008) if there are more than `MAX_DISJOINT_CHARGES` regions.
    """
    all_charges = list(charges)
    if len(all_charges) == 1:
        return all_charges
    sums = Segments(space, np.zeros_like(all_charges[0][1]))
    for region, row in all_charges:
        sums.add(region, row)
    if len(sums) > MAX_DISJOINT_CHARGES:
        raise InvalidValue(
            "R008",
            f"the mechanisms overlap in more than {MAX_DISJOINT_CHARGES} ways; "
            "submit them as separate releases",
        )
    arrays = sums.to_arrays()
    disjoint: list[tuple[Region, LossArray]] = []
    for cell in range(len(sums)):
        row = arrays["amounts"][:, cell]
        if row.any():
            lows, highs = arrays["low"][:, cell].tolist(), arrays["high"][:, cell].tolist()
            disjoint.append((Region((tuple(zip(lows, highs, strict=True)),)), row))
    return disjoint or all_charges[:1]


def _select_rows(charge: Charge, selected: NDArray[np.bool_], count: int) -> Charge:
    """Return the charge of `count` releases to the selected rules."""
    rows = _multiply_saturating(charge.rows[selected], count)
    return Charge(charge.rule_numbers[selected], rows, charge.region, charge.cutoff)


def _multiply_saturating(rows: LossArray, count: int) -> LossArray:
    if count == 1:
        return rows
    return np.where(rows > INFINITE // count, INFINITE, rows * count)
