"""Naive twin of rule grids: each rule has segments of its own, and is cut and compared alone.

`SegmentsByRule` is the twin of `dpolicy.balances.balances.Balances`, and `check_rules` that of
`dpolicy.decisions.decide.check_charges`. `naive_first_point` and `charges_at_most` are the loops
that the code had before it shared cells between rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from dpolicy.balances.balances import Charge, disjoint_charges
from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.balances.granularities import RuleGranularities
from dpolicy.balances.segments import Segments
from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray, add_saturating
from dpolicy.privacy.units.calendar import block_index, block_start
from dpolicy.releases.regions import Box, Point, Region


@dataclass(eq=False)
class SegmentsByRule:
    """Balances with one step function for each rule that is charged in a part of its blocks."""

    granularities: RuleGranularities
    finite: LossArray
    infinite: LossArray
    segments: dict[int, Segments] = field(default_factory=dict)

    @staticmethod
    def zero(granularities: RuleGranularities, width: int) -> SegmentsByRule:
        """Return balances of zero."""
        shape = len(granularities.position_by_rule), width
        return SegmentsByRule(granularities, np.zeros(shape, np.int64), np.zeros(shape, np.int64))

    def uniform_loss(self, number: int) -> LossArray:
        """Return the loss of a rule without segments."""
        return np.where(self.infinite[number] > 0, INFINITE, self.finite[number])

    def needs_segments(self, charge: Charge, number: int) -> bool:
        """Return whether a rule has segments, or needs them after a charge."""
        whole = (self.granularities.space.box,)
        granularity = self.granularities.for_rule(number)
        blocks = self.granularities.space.blocks(charge.region, granularity)
        return number in self.segments or blocks.boxes != whole

    def segments_for(self, number: int) -> Segments:
        """Return the segments of a rule; a single cell if it is charged uniformly."""
        if number in self.segments:
            return self.segments[number]
        return Segments(self.granularities.space.box, self.uniform_loss(number))

    def add(self, charge: Charge, count: int) -> None:
        """Charge one rule after the other."""
        for number, row in zip(charge.rule_numbers.tolist(), charge.rows, strict=True):
            if self.needs_segments(charge, number):
                self.segments[number] = self.segments_for(number)
                blocks = self.granularities.blocks(charge.region, number, charge.cutoff)
                self.segments[number].add(blocks, _times(row, count))
                continue
            is_infinite = row >= INFINITE
            total = self.finite[number] + np.where(is_infinite, 0, _times(row, count))
            self.finite[number] = np.minimum(total, INFINITE)
            self.infinite[number] += count * is_infinite

    def subtract(self, charge: Charge, count: int) -> bool:
        """Undo a charge; return False if that is impossible for a rule."""
        pairs = list(zip(charge.rule_numbers.tolist(), charge.rows, strict=True))
        uniform = [pair for pair in pairs if not self.needs_segments(charge, pair[0])]
        if any((self.finite[number] >= INFINITE).any() for number, _ in uniform):
            return False
        for number, row in pairs:
            if self.needs_segments(charge, number):
                blocks = self.granularities.blocks(charge.region, number, charge.cutoff)
                if not self.segments[number].subtract(blocks, _times(row, count)):
                    return False
        for number, row in uniform:
            self.finite[number] -= np.where(row >= INFINITE, 0, row * count)
            self.infinite[number] -= count * (row >= INFINITE)
            if (self.finite[number] < 0).any() or (self.infinite[number] < 0).any():
                raise InvariantBroken("more is subtracted from a rule than was added")
        return True

    def collapse_time(self, cutoff: int) -> None:
        """Merge old time steps, one rule after the other."""
        period = self.granularities.collapsed_period
        for number, segments in self.segments.items():
            if not self.granularities.collapses(number):
                continue
            time = len(segments.space) - 1
            bounds = np.unique(segments.to_arrays()["low"][time])
            old = bounds[(bounds < cutoff) & (bounds > segments.space[time][0])].tolist()
            inner = (day for day in old if block_start(period, block_index(period, day)) != day)
            for block in dict.fromkeys(block_index(period, day) for day in inner):
                segments.merge(time, block_start(period, block), block_start(period, block + 1))


@dataclass(frozen=True)
class RuleCheck:
    """Check of one rule: at a point for a rule that has or needs segments, else without one."""

    holds: bool
    spent: list[int]
    cost: list[int]
    point: Point | None


def check_rules(
    section: EnforcedSection, balances: SegmentsByRule, charges: Sequence[Charge]
) -> dict[int, RuleCheck]:
    """Check one rule after the other."""
    checks = {}
    for number in sorted({n for charge in charges for n in charge.rule_numbers.tolist()}):
        charged = [c for c in charges if number in c.rule_numbers]
        if any(balances.needs_segments(charge, number) for charge in charged):
            costs = list(_charges_to_rule(section, number, charges))
            disjoint = disjoint_charges(section.full_extent, costs)
            segments = balances.segments_for(number)
            regions = [_check_region(section, segments, number, *piece) for piece in disjoint]
            checks[number] = min(regions)[-1]
            continue
        cost = np.zeros(balances.finite.shape[1], np.int64)
        for charge in charged:
            cost = add_saturating(cost, charge.rows[charge.rule_numbers == number][0])
        spent = balances.uniform_loss(number)
        bounds = section.bounds_for(np.array([number]))
        holds = bool(bounds.are_within(add_saturating(spent, cost)[np.newaxis])[0])
        checks[number] = RuleCheck(holds, spent.tolist(), cost.tolist(), None)
    return checks


def _check_region(
    section: EnforcedSection, segments: Segments, number: int, region: Region, cost: LossArray
) -> tuple[bool, int, Point, RuleCheck]:
    """Check one rule in one region; return the keys by which regions are ranked, and the check."""
    bounds, touching = section.bounds_for(np.array([number])), segments.cells_touching(region)
    first = _cell_at(segments, touching, naive_first_point(segments, touching.tolist(), region))
    in_order = np.array([first, *(cell for cell in touching.tolist() if cell != first)])
    violating, cells = bounds.violating_or_fullest_cells(segments.amounts, in_order, cost)
    sizes_of = section.formatter_for(number).ranking_keys
    if len(violating):
        sizes = sizes_of(add_saturating(segments.columns(violating).T, cost))
        cells = violating[sizes == sizes.max()]
    point = naive_first_point(segments, cells.tolist(), region)
    spent = segments.amounts_at(point)
    size = int(sizes_of(add_saturating(spent, cost)[np.newaxis])[0])
    check = RuleCheck(not len(violating), spent.tolist(), cost.tolist(), point)
    return check.holds, -size, point, check


def naive_first_point(segments: Segments, cells: Sequence[int], region: Region) -> Point:
    """Return the smallest point of a region in one of the cells."""
    parts = segments.to_arrays()
    corners = []
    for cell, box in product(cells, region.boxes):
        lows, highs = parts["low"][:, cell].tolist(), parts["high"][:, cell].tolist()
        shared: Box = tuple(
            (max(a, low), min(b, high)) for (a, b), low, high in zip(box, lows, highs, strict=True)
        )
        if all(low < high for low, high in shared):
            corners.append(tuple(low for low, _ in shared))
    return min(corners)


def _cell_at(segments: Segments, cells: LossArray, point: Point) -> int:
    parts = segments.to_arrays()
    (cell,) = [
        cell
        for cell in cells.tolist()
        if all(
            low <= x < high
            for low, x, high in zip(
                parts["low"][:, cell], point, parts["high"][:, cell], strict=True
            )
        )
    ]
    return int(cell)


def _charges_to_rule(
    section: EnforcedSection, number: int, charges: Sequence[Charge]
) -> Iterator[tuple[Region, LossArray]]:
    for charge in charges:
        for rule, row in zip(charge.rule_numbers.tolist(), charge.rows, strict=True):
            if rule == number:
                yield section.granularities.blocks(charge.region, number, charge.cutoff), row


def charges_at_most(
    section: EnforcedSection, charges: Sequence[Charge], limit_charges: Sequence[Charge]
) -> bool:
    """Return whether `charges` ≤ `limit_charges`, one rule after the other."""
    for number in sorted({n for charge in charges for n in charge.rule_numbers.tolist()}):
        limits = list(_charges_to_rule(section, number, limit_charges))
        if not limits:
            return False
        maximum = Segments(section.full_extent, np.zeros_like(limits[0][1]))
        for region, row in limits:
            maximum.add(region, row)
        costs = _charges_to_rule(section, number, charges)
        for region, row in disjoint_charges(section.full_extent, costs):
            if (row[:, np.newaxis] > maximum.columns(maximum.cells_touching(region))).any():
                return False
    return True


def _times(row: LossArray, count: int) -> LossArray:
    return np.where(row > INFINITE // count, INFINITE, row * count)
