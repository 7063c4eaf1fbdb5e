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

from dpolicy.enforcement.places import Layout
from dpolicy.enforcement.segments import Segments
from dpolicy.errors import InvalidValue, InvariantBroken
from dpolicy.privacy.calendars import index_of, start_of
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.rows import Rows
from dpolicy.releases.regions import Box, Region

#: The mechanisms of a release may overlap in so many ways: each is looked at by itself.
MOST_PIECES = 512

#: Numbers of rules.
Numbers = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Charge:
    """What mechanisms about one region cost the kept rules of a section: a row for each rule.

    `region` is None for everybody at all times; time steps before `cutoff` are not told apart.
    """

    numbers: Numbers
    rows: Rows
    region: Region | None = None
    cutoff: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Balances:
    """What was spent on every rule of a section, by its number."""

    layout: Layout
    finite: Rows
    infinite: NDArray[np.int32]
    has_segments: NDArray[np.bool_]
    segments: dict[int, Segments] = field(default_factory=dict)

    @staticmethod
    def nothing(layout: Layout, width: int) -> Balances:
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
            self.layout,
            self.finite.copy(),
            self.infinite.copy(),
            self.has_segments.copy(),
            {number: segments.copy() for number, segments in self.segments.items()},
        )

    def spent(self, numbers: Numbers) -> Rows:
        """The losses of rules that are charged everywhere alike, one row for each."""
        found = self.finite[numbers]
        found[self.infinite[numbers] > 0] = INFINITE
        return found

    def apart(self, charge: Charge) -> NDArray[np.bool_]:
        """Which rules of a charge have segments, or get them by it."""
        partly = self.layout.partly(charge.region, charge.numbers)
        return partly | self.has_segments[charge.numbers]

    def of(self, number: int) -> Segments:
        """The segments of a rule, to look at; one cell if it is charged everywhere alike."""
        known = self.segments.get(number)
        return known or Segments(self.layout.space.box, self.spent(np.array([number]))[0])

    def give(self, number: int, segments: Segments) -> None:
        """Let a rule have segments."""
        self.segments[number] = segments
        self.has_segments[number] = True

    def add(self, charge: Charge, times: int) -> None:
        """Charge the rules for so many releases alike."""
        apart = self.apart(charge)
        for number, row in _rows(charge, apart, times):
            self.give(number, self.of(number))
            self.segments[number].add(self.layout.blocks(charge.region, number, charge.cutoff), row)
        numbers, rows = charge.numbers[~apart], charge.rows[~apart]
        endless = rows >= INFINITE
        terms = np.where(endless, 0, _times(rows, times))
        self.finite[numbers] = np.minimum(self.finite[numbers] + terms, INFINITE)
        self.infinite[numbers] += times * endless

    def take_away(self, charge: Charge, times: int) -> bool:
        """Undo charges; False where a sum no longer knows its terms, and must be added up anew."""
        apart = self.apart(charge)
        numbers, rows = charge.numbers[~apart], charge.rows[~apart]
        if (self.finite[numbers] >= INFINITE).any():
            return False
        for number, row in _rows(charge, apart, times):
            blocks = self.layout.blocks(charge.region, number, charge.cutoff)
            if not self.segments[number].take_away(blocks, row):
                return False
        endless = rows >= INFINITE
        self.finite[numbers] -= np.where(endless, 0, rows * times)
        self.infinite[numbers] -= times * endless
        if (self.finite[numbers] < 0).any() or (self.infinite[numbers] < 0).any():
            raise InvariantBroken("more is taken away from a rule than was added")
        return True

    def collapse(self, cutoff: int) -> None:
        """Keep time steps before a day together: each takes the largest loss of its block.

        Theory 6.3. Later charges to any part of such a block are charges to all of it.
        """
        into = self.layout.into
        for number, segments in self.segments.items():
            if not self.layout.collapses(number):
                continue
            time = len(segments.space) - 1
            bounds = np.unique(segments.parts()["low"][time])
            old = bounds[(bounds < cutoff) & (bounds > segments.space[time][0])].tolist()
            inside = (day for day in old if start_of(into, index_of(into, day)) != day)
            for block in dict.fromkeys(index_of(into, day) for day in inside):
                segments.merge(time, start_of(into, block), start_of(into, block + 1))


def pieces(space: Box, charges: Iterable[tuple[Region, Rows]]) -> list[tuple[Region, Rows]]:
    """Charges of one rule → disjoint regions, each with the sum of what is charged there."""
    several = list(charges)
    if len(several) == 1:
        return several
    together = Segments(space, np.zeros_like(several[0][1]))
    for region, row in several:
        together.add(region, row)
    if len(together) > MOST_PIECES:
        raise InvalidValue("R008", "the mechanisms overlap in too many ways; ask for them apart")
    parts = together.parts()
    found = []
    for cell in range(len(together)):
        row = parts["amounts"][:, cell]
        ends = zip(parts["low"][:, cell].tolist(), parts["high"][:, cell].tolist(), strict=True)
        found += [(Region((tuple(ends),)), row)] if row.any() else []
    return found or several[:1]


def _rows(charge: Charge, chosen: NDArray[np.bool_], times: int) -> Iterator[tuple[int, Rows]]:
    for position in np.flatnonzero(chosen).tolist():
        yield int(charge.numbers[position]), _times(charge.rows[position], times)


def _times(rows: Rows, times: int) -> Rows:
    if times == 1:
        return rows
    return np.where(rows > INFINITE // times, INFINITE, rows * times)
