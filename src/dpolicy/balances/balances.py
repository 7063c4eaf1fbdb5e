"""Charges → what every rule of a section has spent, everywhere: added, and taken away, exactly.

Most rules are charged everywhere alike: one row each. Infinite terms are counted beside the sum of
the finite ones, so that voiding one gives back what was there before. A rule that some release
touched in part has segments instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.partition_space import RuleGranularities
from dpolicy.balances.segments import Segments
from dpolicy.errors import InvalidValue, InvariantBroken
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.privacy.units.calendar import block_index, block_start
from dpolicy.releases.regions import Box, Region

#: The mechanisms of a release may overlap in so many ways: each is looked at by itself.
MAX_DISJOINT_CHARGES = 512

#: Numbers of rules.
RuleNumbers = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Charge:
    """What mechanisms about one region cost the kept rules of a section: a row for each rule.

    `region` is None for everybody at all times; time steps before `cutoff` are not told apart.
    """

    rule_numbers: RuleNumbers
    rows: LossArray
    region: Region | None = None
    cutoff: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Balances:
    """What was spent on every rule of a section, by its number."""

    granularities: RuleGranularities
    finite: LossArray
    infinite: NDArray[np.int32]
    has_segments: NDArray[np.bool_]
    segments: dict[int, Segments] = field(default_factory=dict)

    @staticmethod
    def zero(layout: RuleGranularities, width: int) -> Balances:
        """Before the first release."""
        rules = len(layout.frame_of)
        return Balances(
            layout,
            np.zeros((rules, width), np.int64),
            np.zeros((rules, width), np.int32),
            np.zeros(rules, np.bool_),
        )

    def copy(self) -> Balances:
        """The same, changed by itself from now on."""
        return Balances(
            self.granularities,
            self.finite.copy(),
            self.infinite.copy(),
            self.has_segments.copy(),
            {number: segments.copy() for number, segments in self.segments.items()},
        )

    def uniform_losses(self, numbers: RuleNumbers) -> LossArray:
        """The losses of rules that are charged everywhere alike, one row for each."""
        found = self.finite[numbers]
        found[self.infinite[numbers] > 0] = INFINITE
        return found

    def needs_segments(self, charge: Charge) -> NDArray[np.bool_]:
        """Which rules of a charge have segments, or get them by it."""
        partly = self.granularities.touches_partially(charge.region, charge.rule_numbers)
        return partly | self.has_segments[charge.rule_numbers]

    def segments_for(self, number: int) -> Segments:
        """The segments of a rule, to look at; one cell if it is charged everywhere alike."""
        known = self.segments.get(number)
        return known or Segments(
            self.granularities.space.box, self.uniform_losses(np.array([number]))[0]
        )

    def set_segments(self, number: int, segments: Segments) -> None:
        """Let a rule have segments."""
        self.segments[number] = segments
        self.has_segments[number] = True

    def add(self, charge: Charge, times: int) -> None:
        """Charge the rules for so many releases alike."""
        apart = self.needs_segments(charge)
        for number, row in _rows(charge, apart, times):
            self.set_segments(number, self.segments_for(number))
            self.segments[number].add(
                self.granularities.blocks(charge.region, number, charge.cutoff), row
            )
        numbers, rows = charge.rule_numbers[~apart], charge.rows[~apart]
        endless = rows >= INFINITE
        terms = np.where(endless, 0, _times(rows, times))
        self.finite[numbers] = np.minimum(self.finite[numbers] + terms, INFINITE)
        self.infinite[numbers] += times * endless

    def subtract(self, charge: Charge, times: int) -> bool:
        """Undo charges; False where a sum no longer knows its terms, and must be added up anew."""
        apart = self.needs_segments(charge)
        numbers, rows = charge.rule_numbers[~apart], charge.rows[~apart]
        if (self.finite[numbers] >= INFINITE).any():
            return False
        for number, row in _rows(charge, apart, times):
            blocks = self.granularities.blocks(charge.region, number, charge.cutoff)
            if not self.segments[number].subtract(blocks, row):
                return False
        endless = rows >= INFINITE
        self.finite[numbers] -= np.where(endless, 0, rows * times)
        self.infinite[numbers] -= times * endless
        if (self.finite[numbers] < 0).any() or (self.infinite[numbers] < 0).any():
            raise InvariantBroken("more is taken away from a rule than was added")
        return True

    def collapse_time(self, cutoff: int) -> None:
        """Keep time steps before a day together: each takes the largest loss of its block.

        Theory 6.3. Later charges to any part of such a block are charges to all of it.
        """
        into = self.granularities.collapsed_period
        for number, segments in self.segments.items():
            if not self.granularities.collapses(number):
                continue
            time = len(segments.space) - 1
            bounds = np.unique(segments.to_arrays()["low"][time])
            old = bounds[(bounds < cutoff) & (bounds > segments.space[time][0])].tolist()
            inside = (day for day in old if block_start(into, block_index(into, day)) != day)
            for block in dict.fromkeys(block_index(into, day) for day in inside):
                segments.merge(time, block_start(into, block), block_start(into, block + 1))


def disjoint_charges(
    space: Box, charges: Iterable[tuple[Region, LossArray]]
) -> list[tuple[Region, LossArray]]:
    """Charges of one rule → disjoint regions, each with the sum of what is charged there."""
    several = list(charges)
    if len(several) == 1:
        return several
    together = Segments(space, np.zeros_like(several[0][1]))
    for region, row in several:
        together.add(region, row)
    if len(together) > MAX_DISJOINT_CHARGES:
        raise InvalidValue("R008", "the mechanisms overlap in too many ways; ask for them apart")
    parts = together.to_arrays()
    found = []
    for cell in range(len(together)):
        row = parts["amounts"][:, cell]
        ends = zip(parts["low"][:, cell].tolist(), parts["high"][:, cell].tolist(), strict=True)
        found += [(Region((tuple(ends),)), row)] if row.any() else []
    return found or several[:1]


def _rows(charge: Charge, chosen: NDArray[np.bool_], times: int) -> Iterator[tuple[int, LossArray]]:
    for position in np.flatnonzero(chosen).tolist():
        yield int(charge.rule_numbers[position]), _times(charge.rows[position], times)


def _times(rows: LossArray, times: int) -> LossArray:
    if times == 1:
        return rows
    return np.where(rows > INFINITE // times, INFINITE, rows * times)
