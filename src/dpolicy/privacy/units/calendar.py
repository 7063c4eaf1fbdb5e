"""Days → blocks of a calendar: exact arithmetic on day numbers for every period (theory 4.4).

A day is its proleptic Gregorian ordinal. Two shapes of partition exist: blocks of equal length at a
phase (day, week, tumbling days), and the irregular ones (month to year, ISO year), which repeat
every 400 years. Windows that slide are not partitions; `units.py` counts them by covering.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise

from dpolicy.errors import InvalidValue, InvariantBroken

#: Every code of periods and days, and what it means for whoever wrote them.
PROBLEMS: Mapping[str, str] = {
    "U001": "a period that is neither of the calendar nor a number of days",
    "U002": "a period of no days, or of more than a century",
    "U003": "a day that the calendar does not have, or that no data can have",
    "U004": "an interval of days that ends before it starts, or none or too many of them",
    "U005": "more blocks than can be listed",
}

#: The Gregorian calendar, week days included, repeats after this many days (400 years).
CYCLE = 146_097

#: Days outside this range are refused: nobody has data there, and block ends stay valid dates.
EARLIEST, LATEST = date(1583, 1, 1), date(8999, 12, 31)

#: The longest sliding or tumbling period, about a century.
MAX_DAYS = 36_600


class PeriodKind(StrEnum):
    """The shapes a period can have; the values are what people write."""

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


#: Months per block, for the irregular kinds that are made of months.
_MONTHS = {PeriodKind.MONTH: 1, PeriodKind.QUARTER: 3, PeriodKind.HALF: 6, PeriodKind.YEAR: 12}


@dataclass(frozen=True, slots=True)
class Period:
    """A span of time that a unit is limited to. Equal values are equal families of blocks.

    `days` is the length of sliding and tumbling periods; `phase` the ordinal of a block start
    modulo that length, None where nobody said (equal values then share the phase nobody said).
    `start` only remembers how the phase was written.
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
    """Every window of so many consecutive days."""
    _check_length(days)
    return DAY if days == 1 else Period(PeriodKind.SLIDING, days)


def tumbling(days: int, start: date | None = None) -> Period:
    """Consecutive blocks of so many days; without `start`, at a phase that nobody knows."""
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
    """Whether any run of so many days may be a block: sliding, or tumbling at no known phase."""
    return period.days > 0 and period.phase is None


def fixed_length_and_phase(period: Period) -> tuple[int, int] | None:
    """Length and phase of a partition into equal blocks; None for the others."""
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
    """The number of the block that holds a day; consecutive blocks have consecutive numbers."""
    shape = fixed_length_and_phase(period)
    if shape:
        return (day - shape[1]) // shape[0]
    if is_window(period):
        raise InvariantBroken(f"`{period}` is not a partition of time")
    when = date.fromordinal(day)
    if period.kind is PeriodKind.ISO_YEAR:
        return when.isocalendar().year
    return (when.year * 12 + when.month - 1) // _MONTHS[period.kind]


def block_start(period: Period, index: int) -> int:
    """The first day of a block."""
    shape = fixed_length_and_phase(period)
    if shape:
        return index * shape[0] + shape[1]
    if period.kind is PeriodKind.ISO_YEAR:
        return date.fromisocalendar(index, 1, 1).toordinal()
    year, month = divmod(index * _MONTHS[period.kind], 12)
    return date(year, month + 1, 1).toordinal()


def cycle_blocks(period: Period) -> Iterator[tuple[int, int]]:
    """First and last day of every block of an irregular partition, over one 400-year cycle."""
    starts = _cycle_starts(period)
    return ((start, end - 1) for start, end in pairwise(starts))


@lru_cache(maxsize=16)
def _cycle_starts(period: Period) -> tuple[int, ...]:
    first = block_index(period, date(2000, 6, 30).toordinal())
    last = block_index(period, date(2400, 6, 30).toordinal())
    return tuple(block_start(period, index) for index in range(first, last + 1))


@lru_cache(maxsize=256)
def longest_block(period: Period) -> int:
    """The length in days of the longest block."""
    shape = fixed_length_and_phase(period)
    if shape or period.days:
        return shape[0] if shape else period.days
    return max(last - first + 1 for first, last in cycle_blocks(period))


def check_day(day: date) -> None:
    """Refuse days that no data can have."""
    if not EARLIEST <= day <= LATEST:
        raise InvalidValue("U003", f"day `{day}` is outside {EARLIEST} to {LATEST}")


def _check_length(days: int) -> None:
    if not 1 <= days <= MAX_DAYS:
        raise InvalidValue("U002", f"a period of `{days}` days is outside 1 to {MAX_DAYS} days")
