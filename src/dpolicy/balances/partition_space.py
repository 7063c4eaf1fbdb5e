"""A policy → its space of places; a mechanism's selection → the blocks it touches for a rule.

A place is one value for every partition and one day. Which of it splits a rule depends on the rule
(theory 6.1): a partition does unless it is unstable, the rule reads the attribute of that name, or
its unit may change places (`replace`) or have several values; time does if the unit has a period,
in blocks of that period (6.2). What does not split is charged everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from dpolicy.errors import InvalidValue, OperationRejected
from dpolicy.policy.model import Collapse, Partition
from dpolicy.policy.vocabulary import smallest_entities
from dpolicy.predicates.expression import Predicate, reads_attribute
from dpolicy.privacy.units.calendar import Period, PeriodKind, block_index, block_start, is_window
from dpolicy.privacy.units.privacy_units import (
    NeighbouringRelation,
    PrivacyUnit,
    TouchedDays,
    period_within,
)
from dpolicy.releases.regions import (
    Box,
    Interval,
    Point,
    Region,
    check_box_count,
    region_from_boxes,
    region_product,
    widen_axis,
)
from dpolicy.releases.release import Selection
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule import RuleProduct

#: The days there are, by ordinal.
ALL_TIME: Interval = (date.min.toordinal(), date.max.toordinal() + 1)


@dataclass(frozen=True, slots=True)
class PartitionAxis:
    """A partition: its listed values by position, or a range of whole numbers."""

    name: str
    values: tuple[str, ...]
    extent: Interval

    def selection_region(self, selection: Selection | None) -> Region:
        """What a mechanism selects, on this axis alone."""
        if selection is None:
            return region_from_boxes([(self.extent,)])
        if isinstance(selection[0], int):
            return region_from_boxes([((int(selection[0]), int(selection[1]) + 1),)])
        places = sorted(self.values.index(str(value)) for value in selection)
        return region_from_boxes(((place, place + 1),) for place in places)

    def parse_value(self, text: str) -> Selection:
        """A value as people write it. Raises `Misused`."""
        if self.values:
            if text not in self.values:
                raise OperationRejected(f"`{text}` is no value of `{self.name}`")
            return (text,)
        low, high = self.extent
        if not re.fullmatch("-?[0-9]{1,15}", text) or not low <= int(text) < high:
            raise OperationRejected(f"`{self.name}` is a whole number from {low} to {high - 1}")
        return int(text), int(text)


@dataclass(frozen=True, slots=True)
class Granularity:
    """What splits a rule: which partitions, by position, and the period of its unit."""

    partitions: frozenset[int]
    period: Period | None


@dataclass(frozen=True, slots=True, eq=False)
class PartitionSpace:
    """All places of a policy; the last axis is time."""

    axes: tuple[PartitionAxis, ...]

    @property
    def box(self) -> Box:
        """The whole extent of each axis."""
        return (*(axis.extent for axis in self.axes), ALL_TIME)

    def region(
        self, where: Sequence[Mapping[str, Selection]], touched: TouchedDays | None
    ) -> Region | None:
        """The places that a mechanism reads; None for all of them. Raises `InvalidValue`."""
        if not where and touched is None:
            return None
        days = region_from_boxes([(ALL_TIME,)] if touched is None else _days(touched))
        boxes: list[Box] = []
        for box in where or ({},):
            sides = [axis.selection_region(box.get(axis.name)) for axis in self.axes]
            boxes += reduce(region_product, [*sides, days]).boxes
            check_box_count(len(boxes))
        found = region_from_boxes(boxes)
        return None if found.boxes == (self.box,) else found

    def parse_location(self, location: Mapping[str, str]) -> Region | None:
        """The places that people name: `country=CH`, `age=18`, `time=2026-10`. Raises `Misused`."""
        names = {axis.name for axis in self.axes}
        unknown = [name for name in location if name not in names and name != "time"]
        if unknown:
            known = ", ".join([*sorted(names), "time"])
            raise OperationRejected(f"there is no partition `{unknown[0]}`; there are {known}")
        where = {
            axis.name: axis.parse_value(location[axis.name])
            for axis in self.axes
            if axis.name in location
        }
        days = _days_named(location["time"]) if "time" in location else None
        return self.region((where,), days)

    def blocks(self, region: Region | None, frame: Granularity) -> Region:
        """The blocks of a rule that a region touches, as all the places in them."""
        if region is None:
            return Region((self.box,))
        return _blocks(region, frame, self.box)

    def location(self, point: Point, frame: Granularity) -> dict[str, str | int]:
        """A place for people: only what splits the rule, and no time before which nothing was."""
        *values, day = point
        told: dict[str, str | int] = {
            axis.name: axis.values[value] if axis.values else value
            for position, (axis, value) in enumerate(zip(self.axes, values, strict=True))
            if position in frame.partitions
        }
        if frame.period is not None and day > ALL_TIME[0]:
            told["time"] = block_name(frame.period, day)
        return told


@lru_cache(maxsize=2048)
def _blocks(region: Region, frame: Granularity, box: Box) -> Region:
    try:
        return _exact_blocks(region, frame, box)
    except InvalidValue:  # too many boxes: touching more is sound
        return Region((box,))


def _exact_blocks(region: Region, frame: Granularity, box: Box) -> Region:
    time = len(box) - 1
    if frame.period is not None:
        period = frame.period
        region = region_from_boxes((*b[:time], _steps(period, b[time])) for b in region.boxes)
    for axis in range(len(box)):
        if axis not in frame.partitions and (axis != time or frame.period is None):
            region = widen_axis(region, axis, box[axis])
    return region


@lru_cache(maxsize=2048)
def _collapsed(region: Region, into: Period, cutoff: int) -> Region:
    """A region that touches all of a long-ago block if it touches any of it (theory 6.3)."""

    def widened_days(days: Interval) -> Interval:
        low, high = days
        first = _steps(into, (low, low + 1))[0] if low < cutoff else low
        return first, max(high, _steps(into, (high - 1, high))[1]) if high <= cutoff else high

    try:
        return region_from_boxes((*box[:-1], widened_days(box[-1])) for box in region.boxes)
    except InvalidValue:  # too many boxes: touching all of the past is sound
        past = (ALL_TIME[0], max(cutoff, max(box[-1][1] for box in region.boxes)))
        hull = zip(*(box[:-1] for box in region.boxes), strict=True)
        sides = ((min(low for low, _ in side), max(high for _, high in side)) for side in hull)
        return Region(((*sides, past),))


@lru_cache(maxsize=64)
def _fits_into(period: Period | None, into: Period) -> bool:
    return period is not None and not is_window(period) and period_within(period, into)


def _steps(period: Period, days: Interval) -> Interval:
    """The days of all blocks that meet some days; of windows, the days on which they begin."""
    low, high = days
    if is_window(period):
        return max(low - period.days + 1, ALL_TIME[0]), high
    first = low if low == ALL_TIME[0] else block_start(period, block_index(period, low))
    if high == ALL_TIME[1] or block_index(period, high - 1) == block_index(period, ALL_TIME[1] - 1):
        return first, ALL_TIME[1]
    return max(first, ALL_TIME[0]), block_start(period, block_index(period, high - 1) + 1)


#: How the blocks of time are written, as `block_name` does.
_WRITTEN = (
    (PeriodKind.YEAR, "[0-9]{4}"),
    (PeriodKind.QUARTER, "[0-9]{4}-Q[1-4]"),
    (PeriodKind.MONTH, "[0-9]{4}-[0-9]{2}"),
    (PeriodKind.WEEK, "[0-9]{4}-W[0-9]{2}"),
    (PeriodKind.DAY, "[0-9]{4}-[0-9]{2}-[0-9]{2}"),
)


def _day_named(kind: PeriodKind, text: str) -> int:
    """The first day of a block. Raises `ValueError`."""
    match kind:
        case PeriodKind.YEAR:
            text += "-01-01"
        case PeriodKind.QUARTER:
            text = f"{text[:4]}-{3 * int(text[-1]) - 2:02}-01"
        case PeriodKind.MONTH | PeriodKind.WEEK:
            text += "-01" if kind is PeriodKind.MONTH else "-1"
    return date.fromisoformat(text).toordinal()


def _days_named(text: str) -> TouchedDays:
    """The days of a year, a month or a day. Raises `Misused`."""
    try:
        kind, day = next(
            (kind, _day_named(kind, text)) for kind, way in _WRITTEN if re.fullmatch(way, text)
        )
    except (StopIteration, ValueError):
        shown = f"`{text}` is no day, week, month, quarter or year such as 2026-10-28 or 2026-W44"
        raise OperationRejected(shown) from None
    first, end = _steps(Period(kind), (day, day + 1))
    return TouchedDays(((first, end - 1),))


def _days(touched: TouchedDays) -> Iterable[Box]:
    for first, last in touched.intervals:
        end = ALL_TIME[1] if last is None else last + 1
        yield ((ALL_TIME[0] if first is None else first, end),)


def block_name(period: Period, day: int) -> str:
    """The block that holds a day, or the window that begins on it."""
    when = date.fromordinal(day)
    match period.kind:
        case PeriodKind.DAY:
            return when.isoformat()
        case PeriodKind.WEEK:
            year, week, _ = when.isocalendar()
            return f"{year}-W{week:02}"
        case PeriodKind.MONTH:
            return f"{when.year:04}-{when.month:02}"
        case PeriodKind.QUARTER:
            return f"{when.year:04}-Q{(when.month + 2) // 3}"
        case PeriodKind.YEAR:
            return f"{when.year:04}"
    if is_window(period):
        first, last = day, day + period.days - 1
    else:
        number = block_index(period, day)
        first, last = block_start(period, number), block_start(period, number + 1) - 1
    ends = (date.fromordinal(min(max(d, ALL_TIME[0]), ALL_TIME[1] - 1)) for d in (first, last))
    return "/".join(end.isoformat() for end in ends)


@lru_cache(maxsize=8)
def partition_space_for(policy: CompiledPolicy) -> PartitionSpace:
    """The places that the releases of a policy can tell apart."""
    return PartitionSpace(
        tuple(_axis(str(n), said) for n, said in policy.policy_set.partitions.items())
    )


def _axis(name: str, partition: Partition) -> PartitionAxis:
    if partition.values is not None:
        values = tuple(map(str, partition.values))
        return PartitionAxis(name, values, (0, len(values)))
    return PartitionAxis(name, (), (partition.first or 0, (partition.last or 0) + 1))


@dataclass(frozen=True, slots=True, eq=False)
class RuleGranularities:
    """How the rules of a section are split: the distinct frames, and that of each rule."""

    space: PartitionSpace
    frames: tuple[Granularity, ...]
    frame_of: NDArray[np.intp]
    collapse: Collapse | None = None

    def touches_partially(
        self, region: Region | None, numbers: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Which of the rules a region touches in some of their blocks only."""
        found = np.zeros(len(numbers), dtype=bool)
        if region is None:
            return found
        frames = self.frame_of[numbers]
        for frame in np.unique(frames).tolist():
            blocks = self.space.blocks(region, self.frames[frame])
            found |= (frames == frame) & (blocks.boxes != (self.space.box,))
        return found

    def blocks(self, region: Region | None, number: int, cutoff: int = 0) -> Region:
        """The blocks of a rule that a region touches; those of long ago are one with others."""
        frame = self.frames[self.frame_of[number]]
        blocks = self.space.blocks(region, frame)
        if cutoff and self.collapses(number):
            return _collapsed(blocks, self.collapsed_period, cutoff)
        return blocks

    def collapses(self, number: int) -> bool:
        """Whether the time steps of a rule are kept together when they are long ago."""
        period = self.frames[self.frame_of[number]].period
        return self.collapse is not None and _fits_into(period, self.collapsed_period)

    @property
    def collapsed_period(self) -> Period:
        """The blocks that time steps of long ago are kept in together."""
        return Period(PeriodKind(self.collapse.into if self.collapse else PeriodKind.YEAR))

    def cutoff(self, day: int) -> int:
        """The day before which time steps are kept together, as seen from a day; 0 for never."""
        if self.collapse is None or not day:
            return 0
        when = date.fromordinal(day)
        months = when.year * 12 + when.month - 1 - self.collapse.after
        if months < 12:
            return 0
        return block_start(
            self.collapsed_period,
            block_index(self.collapsed_period, date(months // 12, months % 12 + 1, 1).toordinal()),
        )

    def location_for_rule(self, point: Point, number: int, cutoff: int = 0) -> dict[str, str | int]:
        """A place of a rule for people."""
        frame = self.frames[self.frame_of[number]]
        if point[-1] < cutoff and self.collapses(number):
            frame = replace(frame, period=self.collapsed_period)
        return self.space.location(point, frame)


def granularities_for(policy: CompiledPolicy, rules: RuleProduct) -> RuleGranularities:
    """How the rules of a section are split."""
    names = tuple(map(str, policy.policy_set.partitions))
    units = policy.checked_policy_set.vocabulary.units
    own = [unit_granularity(policy, units[base.unit]) for base in rules.bases]
    read = [frozenset[int]()]  # by all settings of a combination; the last axis turns fastest
    for axis in rules.axes:
        own_of_axis = [_read(names, setting.predicate) for setting in axis]
        read = [before | more for before in read for more in own_of_axis]
    alike: dict[frozenset[int], list[int]] = {}
    for combination, partitions in enumerate(read):
        alike.setdefault(partitions, []).append(combination)
    numbers: dict[Granularity, int] = {}
    found = np.empty((len(own), rules.width), dtype=np.intp)
    for position, (base, frame) in enumerate(zip(rules.bases, own, strict=True)):
        splits = frame.partitions - _read(names, base.predicate)
        for partitions, combinations in alike.items():
            left = Granularity(splits - partitions, frame.period)
            found[position, combinations] = numbers.setdefault(left, len(numbers))
    collapse = policy.policy_set.accounting.collapse
    return RuleGranularities(
        partition_space_for(policy), tuple(numbers), found.reshape(-1), collapse
    )


def _read(names: Sequence[str], predicate: Predicate) -> frozenset[int]:
    """The partitions whose attribute a predicate reads."""
    return frozenset(n for n, name in enumerate(names) if reads_attribute(predicate, name))


def unit_granularity(policy: CompiledPolicy, unit: PrivacyUnit) -> Granularity:
    """What splits a rule for a unit, as far as that does not depend on its scope."""
    if unit.relation is NeighbouringRelation.REPLACE:
        return Granularity(frozenset(), None)
    partitions = policy.policy_set.partitions.values()
    splits = [said.stable and _has_one_value(said, unit, policy) for said in partitions]
    return Granularity(frozenset(n for n, does in enumerate(splits) if does), unit.period)


def _has_one_value(partition: Partition, unit: PrivacyUnit, policy: CompiledPolicy) -> bool:
    """Whether all data of a unit lies in one part (6.1 a): that of its owner, or of one inside."""
    vocabulary = policy.checked_policy_set.vocabulary
    if partition.of is not None:
        owner = vocabulary.units[str(partition.of)].entity
    else:
        owners = smallest_entities(vocabulary.units, vocabulary.entities)
        if len(owners) != 1:
            return False
        (owner,) = owners
    return unit.entity == owner or vocabulary.covers(owner, unit.entity)
