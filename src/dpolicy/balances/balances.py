"""Balances: the loss charged to every rule of a section, with exact addition and subtraction.

Most rules are charged uniformly and need one row. Infinite terms are counted separately from the
finite sum, so that a void restores the previous balance exactly. A rule gets segments when a
release touches some of its blocks but not all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.granularities import RuleGranularities
from dpolicy.balances.segments import Segments
from dpolicy.errors import InvalidValue, InvariantBroken
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.privacy.units.calendar import block_index, block_start
from dpolicy.releases.regions import Box, Region

#: Limit of the disjoint regions into which the mechanisms of one release split a rule.
MAX_DISJOINT_CHARGES = 512

#: Numbers of rules.
RuleNumbers = NDArray[np.intp]


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
    has_segments: NDArray[np.bool_]
    segments: dict[int, Segments] = field(default_factory=dict)

    @staticmethod
    def zero(granularities: RuleGranularities, width: int) -> Balances:
        """Return balances of zero; `width` is the number of columns of a loss row."""
        rules = len(granularities.position_by_rule)
        return Balances(
            granularities,
            np.zeros((rules, width), np.int64),
            np.zeros((rules, width), np.int32),
            np.zeros(rules, np.bool_),
        )

    def copy(self) -> Balances:
        """Return an independent copy."""
        return Balances(
            self.granularities,
            self.finite.copy(),
            self.infinite.copy(),
            self.has_segments.copy(),
            {number: segments.copy() for number, segments in self.segments.items()},
        )

    def uniform_losses(self, numbers: RuleNumbers) -> LossArray:
        """Return the losses of rules without segments, one row per rule."""
        losses = self.finite[numbers]
        losses[self.infinite[numbers] > 0] = INFINITE
        return losses

    def needs_segments(self, charge: Charge) -> NDArray[np.bool_]:
        """Return which rules of a charge have segments, or need them after this charge."""
        partial = self.granularities.touches_partially(charge.region, charge.rule_numbers)
        return partial | self.has_segments[charge.rule_numbers]

    def segments_for(self, number: int) -> Segments:
        """Return the segments of a rule; a new single cell if the rule is charged uniformly."""
        segments = self.segments.get(number)
        if segments is not None:
            return segments
        uniform = self.uniform_losses(np.array([number]))[0]
        return Segments(self.granularities.space.box, uniform)

    def set_segments(self, number: int, segments: Segments) -> None:
        """Store the segments of a rule."""
        self.segments[number] = segments
        self.has_segments[number] = True

    def add(self, charge: Charge, count: int) -> None:
        """Charge the rules for `count` releases with this charge."""
        segmented = self.needs_segments(charge)
        for number, row in _select_rows(charge, segmented, count):
            self.set_segments(number, self.segments_for(number))
            blocks = self.granularities.blocks(charge.region, number, charge.cutoff)
            self.segments[number].add(blocks, row)
        numbers, rows = charge.rule_numbers[~segmented], charge.rows[~segmented]
        infinite = rows >= INFINITE
        terms = np.where(infinite, 0, _multiply_saturating(rows, count))
        self.finite[numbers] = np.minimum(self.finite[numbers] + terms, INFINITE)
        self.infinite[numbers] += count * infinite

    def subtract(self, charge: Charge, count: int) -> bool:
        """Undo the charge of `count` releases.

        Return False if a sum is saturated or was merged; the caller must then recompute the
        balances from zero, because some rules may have been changed already.
        """
        segmented = self.needs_segments(charge)
        numbers, rows = charge.rule_numbers[~segmented], charge.rows[~segmented]
        if (self.finite[numbers] >= INFINITE).any():
            return False
        for number, row in _select_rows(charge, segmented, count):
            blocks = self.granularities.blocks(charge.region, number, charge.cutoff)
            if not self.segments[number].subtract(blocks, row):
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
        for number, segments in self.segments.items():
            if not self.granularities.collapses(number):
                continue
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


def _select_rows(
    charge: Charge, selected: NDArray[np.bool_], count: int
) -> Iterator[tuple[int, LossArray]]:
    for position in np.flatnonzero(selected).tolist():
        row = _multiply_saturating(charge.rows[position], count)
        yield int(charge.rule_numbers[position]), row


def _multiply_saturating(rows: LossArray, count: int) -> LossArray:
    if count == 1:
        return rows
    return np.where(rows > INFINITE // count, INFINITE, rows * count)
