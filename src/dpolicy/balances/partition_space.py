"""Partition space of a policy, and the blocks of a granularity that a region touches.

A point has one value per partition and one day (theory 6.1). The last axis is time, in days.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache, reduce

from dpolicy.errors import InvalidValue, OperationRejected
from dpolicy.policy.model import Partition
from dpolicy.privacy.units.calendar import Period, PeriodKind, block_index, block_start, is_window
from dpolicy.privacy.units.privacy_units import (
    TouchedDays,
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

#: All days, as ordinals.
ALL_TIME: Interval = (date.min.toordinal(), date.max.toordinal() + 1)


@dataclass(frozen=True, slots=True)
class PartitionAxis:
    """Axis of a partition: listed values by position, or a range of whole numbers."""

    name: str
    values: tuple[str, ...]
    extent: Interval

    def selection_region(self, selection: Selection | None) -> Region:
        """Return the part of this axis that a selection covers; None selects the whole axis."""
        if selection is None:
            return region_from_boxes([(self.extent,)])
        if isinstance(selection[0], int):
            return region_from_boxes([((int(selection[0]), int(selection[1]) + 1),)])
        positions = sorted(self.values.index(str(value)) for value in selection)
        return region_from_boxes(((position, position + 1),) for position in positions)

    def parse_value(self, text: str) -> Selection:
        """Parse a value of this axis. Raise `OperationRejected` if it is not one."""
        if self.values:
            if text not in self.values:
                raise OperationRejected(f"`{text}` is not a value of the partition `{self.name}`")
            return (text,)
        low, high = self.extent
        if not re.fullmatch("-?[0-9]{1,15}", text) or not low <= int(text) < high:
            raise OperationRejected(
                f"`{self.name}` must be a whole number from {low} to {high - 1}, not `{text[:40]}`"
            )
        return int(text), int(text)


@dataclass(frozen=True, slots=True)
class Granularity:
    """Dimensions by which a rule is tracked: partitions by position, and the period of its unit."""

    partitions: frozenset[int]
    period: Period | None


@dataclass(frozen=True, slots=True, eq=False)
class PartitionSpace:
    """All points that releases of a policy can distinguish; the last axis is time."""

    axes: tuple[PartitionAxis, ...]

    @property
    def box(self) -> Box:
        """The box that contains the whole space."""
        return (*(axis.extent for axis in self.axes), ALL_TIME)

    def region(
        self, where: Sequence[Mapping[str, Selection]], touched: TouchedDays | None
    ) -> Region | None:
        """Return the region that a mechanism reads; None for the whole space.

        Raise `InvalidValue` if it has too many boxes.
        """
        if not where and touched is None:
            return None
        days = region_from_boxes([(ALL_TIME,)] if touched is None else _day_boxes(touched))
        boxes: list[Box] = []
        for box in where or ({},):
            sides = [axis.selection_region(box.get(axis.name)) for axis in self.axes]
            boxes += reduce(region_product, [*sides, days]).boxes
            check_box_count(len(boxes))
        region = region_from_boxes(boxes)
        return None if region.boxes == (self.box,) else region

    def parse_location(self, location: Mapping[str, str]) -> Region | None:
        """Parse a location such as `{"country": "CH", "time": "2026-10"}`; None for all points.

        Raise `OperationRejected` for an unknown partition or value.
        """
        names = {axis.name for axis in self.axes}
        unknown = [name for name in location if name not in names and name != "time"]
        if unknown:
            known_names = ", ".join([*sorted(names), "time"])
            raise OperationRejected(f"no partition `{unknown[0]}`; partitions: {known_names}")
        where = {
            axis.name: axis.parse_value(location[axis.name])
            for axis in self.axes
            if axis.name in location
        }
        days = _parse_days(location["time"]) if "time" in location else None
        return self.region((where,), days)

    def blocks(self, region: Region | None, granularity: Granularity) -> Region:
        """Return all points of the blocks that a region touches."""
        if region is None:
            return Region((self.box,))
        return _blocks(region, granularity, self.box)

    def location(self, point: Point, granularity: Granularity) -> dict[str, str | int]:
        """Return the location of a point: only the dimensions of the granularity.

        The start of the time axis has no name.
        """
        *values, day = point
        location: dict[str, str | int] = {
            axis.name: axis.values[value] if axis.values else value
            for position, (axis, value) in enumerate(zip(self.axes, values, strict=True))
            if position in granularity.partitions
        }
        if granularity.period is not None and day > ALL_TIME[0]:
            location["time"] = block_name(granularity.period, day)
        return location


@lru_cache(maxsize=2048)
def _blocks(region: Region, granularity: Granularity, box: Box) -> Region:
    try:
        return _exact_blocks(region, granularity, box)
    except InvalidValue:  # too many boxes: charging the whole space is sound
        return Region((box,))


def _exact_blocks(region: Region, granularity: Granularity, box: Box) -> Region:
    time, period = len(box) - 1, granularity.period
    if period is not None:
        region = region_from_boxes(
            (*b[:time], touched_steps(period, b[time])) for b in region.boxes
        )
    for axis in range(len(box)):
        if axis not in granularity.partitions and (axis != time or period is None):
            region = widen_axis(region, axis, box[axis])
    return region


def touched_steps(period: Period, days: Interval) -> Interval:
    """Return the days of all blocks that contain one of `days`.

    A window is identified by its first day: return the first days of all windows that meet `days`.
    """
    low, high = days
    if is_window(period):
        return max(low - period.days + 1, ALL_TIME[0]), high
    first = low if low == ALL_TIME[0] else block_start(period, block_index(period, low))
    if high == ALL_TIME[1] or block_index(period, high - 1) == block_index(period, ALL_TIME[1] - 1):
        return first, ALL_TIME[1]
    return max(first, ALL_TIME[0]), block_start(period, block_index(period, high - 1) + 1)


#: Patterns of the block names that `block_name` returns.
_BLOCK_NAMES = (
    (PeriodKind.YEAR, "[0-9]{4}"),
    (PeriodKind.QUARTER, "[0-9]{4}-Q[1-4]"),
    (PeriodKind.MONTH, "[0-9]{4}-[0-9]{2}"),
    (PeriodKind.WEEK, "[0-9]{4}-W[0-9]{2}"),
    (PeriodKind.DAY, "[0-9]{4}-[0-9]{2}-[0-9]{2}"),
)


def _first_day(kind: PeriodKind, text: str) -> int:
    """Return the first day of a named block. Raise `ValueError` if there is no such day."""
    match kind:
        case PeriodKind.YEAR:
            text += "-01-01"
        case PeriodKind.QUARTER:
            text = f"{text[:4]}-{3 * int(text[-1]) - 2:02}-01"
        case PeriodKind.MONTH | PeriodKind.WEEK:
            text += "-01" if kind is PeriodKind.MONTH else "-1"
    return date.fromisoformat(text).toordinal()


def _parse_days(text: str) -> TouchedDays:
    """Parse the name of a block of time. Raise `OperationRejected`."""
    try:
        kind, day = next(
            (kind, _first_day(kind, text))
            for kind, pattern in _BLOCK_NAMES
            if re.fullmatch(pattern, text)
        )
    except (StopIteration, ValueError):
        raise OperationRejected(
            f"`{text[:40]}` is not a day, week, month, quarter or year; "
            "write for example 2026-10-28 or 2026-W44"
        ) from None
    first, end = touched_steps(Period(kind), (day, day + 1))
    return TouchedDays(((first, end - 1),))


def _day_boxes(touched: TouchedDays) -> Iterable[Box]:
    for first, last in touched.intervals:
        end = ALL_TIME[1] if last is None else last + 1
        yield ((ALL_TIME[0] if first is None else first, end),)


def block_name(period: Period, day: int) -> str:
    """Return the name of the block that contains a day, or of the window that begins on it."""
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


def build_partition_space(policy: CompiledPolicy) -> PartitionSpace:
    """Build the partition space of a policy."""
    axes = (_build_axis(str(name), partition) for name, partition in policy.partitions.items())
    return PartitionSpace(tuple(axes))


def _build_axis(name: str, partition: Partition) -> PartitionAxis:
    if partition.values is not None:
        values = tuple(map(str, partition.values))
        return PartitionAxis(name, values, (0, len(values)))
    return PartitionAxis(name, (), (partition.first or 0, (partition.last or 0) + 1))
