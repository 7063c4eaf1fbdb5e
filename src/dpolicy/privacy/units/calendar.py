"""Calendar periods and their blocks: exact arithmetic on day numbers (theory 4.4).

A day is its proleptic Gregorian ordinal. There are two shapes of partition: blocks of equal length
with a phase (day, week, tumbling days), and irregular blocks (month to year, ISO year), which
repeat every 400 years. Sliding windows are not partitions; `privacy_units.py` counts the windows
that cover the days.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise

from dpolicy.errors import InvalidValue, InvariantBroken

#: Titles of the problem codes of periods and days.
PROBLEMS: Mapping[str, str] = {
    "U001": "a period is neither a calendar period nor a number of days",
    "U002": "a period has no days, or more than about a century",
    "U003": "a day is not in the calendar, or outside the accepted range",
    "U004": "an interval of days ends before it starts, or there are no or too many intervals",
    "U005": "a period has more blocks than can be listed",
}

#: The Gregorian calendar, week days included, repeats after this many days (400 years).
CYCLE = 146_097

#: Accepted days: no data is outside, and the ends of blocks remain valid dates.
EARLIEST, LATEST = date(1583, 1, 1), date(8999, 12, 31)

#: Longest sliding or tumbling period, about a century.
MAX_DAYS = 36_600


class PeriodKind(StrEnum):
    """Kind of a period; the values are the words of the policy language."""

    DAY = "day"
    WEEK = "week"
    SUNDAY_WEEK = "sunday-week"
    MONTH = "month"
    QUARTER = "quarter"
    HALF = "half"
    YEAR = "year"
    ISO_YEAR = "iso-year"
    SLIDING = "sliding"
    TUMBLING = "tumbling"


#: Months per block, for the irregular kinds that consist of months.
_MONTHS = {PeriodKind.MONTH: 1, PeriodKind.QUARTER: 3, PeriodKind.HALF: 6, PeriodKind.YEAR: 12}


@dataclass(frozen=True, slots=True)
class Period:
    """A span of time that limits a privacy unit. Equal periods have equal blocks.

    `days` is the length of sliding and tumbling periods. `phase` is the ordinal of a block start
    modulo that length; None if it was not stated (two equal periods without a phase are assumed to
    have the same phase). `start` is the day with which the phase was stated, for display only.
    """

    kind: PeriodKind
    days: int = 0
    phase: int | None = None
    start: date | None = field(default=None, compare=False)

    def __str__(self) -> str:
        if self.kind is PeriodKind.SLIDING:
            return f"sliding {self.days} days"
        if self.kind is PeriodKind.TUMBLING:
            return f"{self.days} days" + (f" from {self.start}" if self.start else "")
        return str(self.kind)


DAY = Period(PeriodKind.DAY)
WEEK = Period(PeriodKind.WEEK)
SUNDAY_WEEK = Period(PeriodKind.SUNDAY_WEEK)
MONTH = Period(PeriodKind.MONTH)
QUARTER = Period(PeriodKind.QUARTER)
HALF = Period(PeriodKind.HALF)
YEAR = Period(PeriodKind.YEAR)
ISO_YEAR = Period(PeriodKind.ISO_YEAR)


def sliding(days: int) -> Period:
    """Return the period whose blocks are all windows of `days` consecutive days."""
    _check_length(days)
    return DAY if days == 1 else Period(PeriodKind.SLIDING, days)


def tumbling(days: int, start: date | None = None) -> Period:
    """Return the period of consecutive blocks of `days`; without `start`, the phase is unknown."""
    _check_length(days)
    if days == 1:
        return DAY
    if start is None:
        return Period(PeriodKind.TUMBLING, days)
    check_day(start)
    phase = start.toordinal() % days
    if days == 7 and phase in (0, 1):
        return WEEK if phase == 1 else SUNDAY_WEEK
    return Period(PeriodKind.TUMBLING, days, phase, start)


def is_window(period: Period) -> bool:
    """Return whether any `days` consecutive days may be a block: sliding, or of unknown phase."""
    return period.days > 0 and period.phase is None


def fixed_length_and_phase(period: Period) -> tuple[int, int] | None:
    """Return length and phase of a partition into blocks of equal length; None for others."""
    match period.kind:
        case PeriodKind.DAY:
            return 1, 0
        case PeriodKind.WEEK:
            return 7, 1  # ordinal 1 is a Monday
        case PeriodKind.SUNDAY_WEEK:
            return 7, 0
        case PeriodKind.TUMBLING if period.phase is not None:
            return period.days, period.phase
    return None


def block_index(period: Period, day: int) -> int:
    """Return the number of the block that contains a day; numbers are consecutive.

    Raise `InvariantBroken` for windows, which are no partition.
    """
    shape = fixed_length_and_phase(period)
    if shape:
        return (day - shape[1]) // shape[0]
    if is_window(period):
        raise InvariantBroken(f"`{period}` is not a partition of time")
    calendar_day = date.fromordinal(day)
    if period.kind is PeriodKind.ISO_YEAR:
        return calendar_day.isocalendar().year
    return (calendar_day.year * 12 + calendar_day.month - 1) // _MONTHS[period.kind]


def block_start(period: Period, index: int) -> int:
    """Return the first day of a block."""
    shape = fixed_length_and_phase(period)
    if shape:
        return index * shape[0] + shape[1]
    if period.kind is PeriodKind.ISO_YEAR:
        return date.fromisocalendar(index, 1, 1).toordinal()
    year, month = divmod(index * _MONTHS[period.kind], 12)
    return date(year, month + 1, 1).toordinal()


def cycle_blocks(period: Period) -> Iterator[tuple[int, int]]:
    """Return first and last day of every irregular block, over one cycle of 400 years."""
    starts = _cycle_starts(period)
    return ((start, end - 1) for start, end in pairwise(starts))


@lru_cache(maxsize=16)
def _cycle_starts(period: Period) -> tuple[int, ...]:
    first = block_index(period, date(2000, 6, 30).toordinal())
    last = block_index(period, date(2400, 6, 30).toordinal())
    return tuple(block_start(period, index) for index in range(first, last + 1))


@lru_cache(maxsize=256)
def longest_block(period: Period) -> int:
    """Return the length of the longest block in days."""
    shape = fixed_length_and_phase(period)
    if shape or period.days:
        return shape[0] if shape else period.days
    return max(last - first + 1 for first, last in cycle_blocks(period))


@lru_cache(maxsize=256)
def shortest_block(period: Period) -> int:
    """Return the length of the shortest block in days."""
    shape = fixed_length_and_phase(period)
    if shape or period.days:
        return shape[0] if shape else period.days
    return min(last - first + 1 for first, last in cycle_blocks(period))


def check_day(day: date) -> None:
    """Raise `InvalidValue` (U003) if a day is outside `EARLIEST` to `LATEST`."""
    if not EARLIEST <= day <= LATEST:
        raise InvalidValue("U003", f"day `{day}` is outside {EARLIEST} to {LATEST}")


def _check_length(days: int) -> None:
    if not 1 <= days <= MAX_DAYS:
        raise InvalidValue("U002", f"a period of `{days}` days is outside 1 to {MAX_DAYS} days")
