"""Privacy units, their order, and group sizes between them (theory 0.1, 4.3 to 4.5).

A unit states whose data is protected (`entity`), for which span of time (`period`), and what may
differ between neighbouring databases (`relation`). Group sizes are exact over the whole Gregorian
calendar and take the days that a mechanism reads into account. Two assumptions cannot be checked:
the mechanism reads no other days (theory 5.4), and all days are in one time zone. The policy, not
this module, defines which entity covers which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import lru_cache
from math import gcd

from dpolicy.errors import InvalidValue
from dpolicy.privacy.units.calendar import (
    CYCLE,
    DAY,
    Period,
    PeriodKind,
    block_index,
    block_start,
    check_day,
    cycle_blocks,
    fixed_length_and_phase,
    is_window,
    longest_block,
    shortest_block,
    sliding,
    tumbling,
)

#: Largest number of blocks that are enumerated; above it, the group size is an upper bound.
MAX_SCAN = 6_000

#: Largest number of blocks that `blocks_between` lists (a century has 36,525 days).
MAX_BLOCKS = 100_000

#: Largest number of separate intervals that a mechanism may read.
MAX_INTERVALS = 1_000


#: Sorted disjoint intervals of day numbers, both ends included.
Intervals = tuple[tuple[int, int], ...]


class NeighbouringRelation(StrEnum):
    """Difference between neighbouring databases (theory 0.1)."""

    ADD_REMOVE = "add-remove"
    CHANGE = "change"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """Unit that a guarantee protects; without a period, all data of the entity for all time."""

    name: str
    entity: str
    period: Period | None = None
    relation: NeighbouringRelation = NeighbouringRelation.ADD_REMOVE


@dataclass(frozen=True, slots=True)
class TouchedDays:
    """Days that a mechanism reads: sorted disjoint intervals of ordinals, None at an open end."""

    intervals: tuple[tuple[int | None, int | None], ...]

    @property
    def bounded_intervals(self) -> Intervals | None:
        """The intervals; None if one of them has an open end."""
        closed = tuple((a, b) for a, b in self.intervals if a is not None and b is not None)
        return closed if len(closed) == len(self.intervals) else None


@dataclass(frozen=True, slots=True, order=True)
class CalendarBlock:
    """One block of a period, from `first` to `last` inclusive."""

    first: date
    last: date


def touched_days(*intervals: tuple[date | None, date | None]) -> TouchedDays:
    """Return the union of inclusive intervals; None is an open end.

    Raise `InvalidValue` if the number of intervals (U004), an interval (U004) or a day (U003) is
    invalid.
    """
    if not 1 <= len(intervals) <= MAX_INTERVALS:
        message = f"there must be 1 to {MAX_INTERVALS} intervals, not `{len(intervals)}`"
        raise InvalidValue("U004", message)
    for first, last in intervals:
        for day in (first, last):
            if day is not None:
                check_day(day)
        if first is not None and last is not None and first > last:
            raise InvalidValue("U004", f"the interval from `{first}` to `{last}` contains no day")
    return TouchedDays(_merge(intervals))


def _merge(
    intervals: Iterable[tuple[date | None, date | None]],
) -> tuple[tuple[int | None, int | None], ...]:
    """Sort intervals and join those that overlap or touch, so that equal sets are equal."""
    far = date.max.toordinal()
    ends = sorted((a.toordinal() if a else 0, b.toordinal() if b else far) for a, b in intervals)
    joined: list[tuple[int, int]] = []
    for first, last in ends:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple((a or None, None if b == far else b) for a, b in joined)


_CALENDAR = {
    str(k): Period(k) for k in PeriodKind if k not in (PeriodKind.SLIDING, PeriodKind.TUMBLING)
}
_DAYS = re.compile(r"(sliding )?([0-9]{1,9}) days?(?: from ([0-9]{4}-[0-9]{2}-[0-9]{2}))?")


def parse_period(text: str) -> Period:
    """Parse a period such as `month`, `sliding 30 days`, `30 days` or `30 days from 2026-01-05`.

    Raise `InvalidValue` for an unknown period (U001), length (U002) or day (U003).
    """
    if text in _CALENDAR:
        return _CALENDAR[text]
    match = _DAYS.fullmatch(text)
    if match is None or (match[1] and match[3]):
        names = ", ".join(_CALENDAR)
        raise InvalidValue(
            "U001",
            f"unknown period `{text}`; help: use one of {names}, `sliding 30 days`, `30 days` or "
            "`30 days from 2026-01-05`",
        )
    if match[1]:
        return sliding(int(match[2]))
    return tumbling(int(match[2]), _parse_day(match[3]) if match[3] else None)


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidValue("U003", f"`{text}` is not a day of the calendar") from None


def period_within(a: Period | None, b: Period | None) -> bool:
    """Return whether every block of `a` lies inside one block of `b`; None is all time."""
    return b is None or (a is not None and group_size(b, a, None) == 1)


@lru_cache(maxsize=64)
def can_collapse(period: Period | None, into: Period) -> bool:
    """Return whether old time steps of a period can be merged into blocks of `into` (theory 6.3).

    Each step must lie inside one block of `into`. Windows overlap, so they cannot be merged.
    """
    return period is not None and not is_window(period) and period_within(period, into)


def group_size(src: Period | None, dst: Period | None, touched: TouchedDays | None) -> int | None:
    """Return how many `src` blocks the days read from one `dst` block can meet; None if unbounded.

    This is k_T of theory 4.3, the maximum over all `dst` blocks. Without `touched`, the mechanism
    may read every day. For sliding `src` it is the number of windows that cover those days. The
    result is never too small. It is exact unless several intervals meet windows, or more than
    `MAX_SCAN` blocks would have to be enumerated.
    """
    if src is None or (src == dst and dst is not None):
        return 1
    intervals = touched.bounded_intervals if touched is not None else None
    if intervals is None:
        return None if dst is None else _group_size_everywhere(src, dst)
    return _cover(src, intervals) if dst is None else _group_size_within(src, dst, intervals)


def add_remove_size(
    src: Period | None, dst: Period | None, touched: TouchedDays | None
) -> int | None:
    """Return how many `src` units must be removed or added to remove the data of one `dst` block.

    If a `src` block lies only partly in the `dst` block, it takes two steps: remove the whole
    block, then add the part outside again (theory 0.1, N1). Only the first and the last block can
    be partial. None if unbounded.
    """
    size = group_size(src, dst, touched)
    if size is None or src == dst or _is_union(src, dst) or _is_within_one(dst, touched):
        return size
    return 2 * size if src is None or is_window(src) else size + min(size, 2)


def tighter_add_remove_size(
    src: Period | None, dst: Period | None, touched: TouchedDays | None
) -> int | None:
    """Return `add_remove_size` of the second cost rules (docs/theory/tighter-costs.md, 4).

    Sliding windows that cover the days read of a block can be moved inside it, so none is cut,
    unless the block is shorter than a window: then one window takes two steps. A block of a
    tumbling period cuts at most two blocks of another one, at any phase.
    """
    size = add_remove_size(src, dst, touched)
    blocks = group_size(src, dst, touched)
    if size is None or blocks is None or size == blocks or src is None or not is_window(src):
        return size
    if src.kind is not PeriodKind.SLIDING:
        return min(size, blocks + 2)
    is_shorter = dst is None or shortest_block(dst) < src.days
    return max(blocks, 2) if is_shorter else blocks


def _is_union(src: Period | None, dst: Period | None) -> bool:
    """Return whether every `dst` block is a union of whole `src` blocks.

    `period_within` is not enough if `dst` slides: a window of 7 days cuts the weeks that it meets.
    Windows may overlap, so shorter windows fill a longer one.
    """
    if dst is None or not period_within(src, dst):
        return dst is None
    both_slide = (
        src is not None and src.kind is PeriodKind.SLIDING and dst.kind is PeriodKind.SLIDING
    )
    return not is_window(dst) or both_slide or src == DAY


def _is_within_one(dst: Period | None, touched: TouchedDays | None) -> bool:
    """Return whether every `dst` block contains either all days that are read, or none."""
    intervals = touched.bounded_intervals if touched is not None else None
    if dst is None or intervals is None:
        return dst is None
    first, last = intervals[0][0], intervals[-1][1]
    return first == last or (
        not is_window(dst) and block_index(dst, first) == block_index(dst, last)
    )


def blocks_between(period: Period, first: date, last: date) -> tuple[CalendarBlock, ...]:
    """Return the blocks that meet the days `first` to `last`, in order.

    For sliding periods and unknown phases these are all windows. Raise `InvalidValue` (U005) if
    there are more than `MAX_BLOCKS`.
    """
    low, high = _ends(touched_days((first, last)))
    if is_window(period):
        spans = ((day, day + period.days - 1) for day in range(low - period.days + 1, high + 1))
        count = high - low + period.days
    else:
        numbers = range(block_index(period, low), block_index(period, high) + 1)
        spans = ((block_start(period, n), block_start(period, n + 1) - 1) for n in numbers)
        count = len(numbers)
    if count > MAX_BLOCKS:
        raise InvalidValue("U005", f"`{count}` blocks of `{period}` are more than {MAX_BLOCKS}")
    return tuple(CalendarBlock(date.fromordinal(a), date.fromordinal(b)) for a, b in spans)


def _ends(days: TouchedDays) -> tuple[int, int]:
    intervals = days.bounded_intervals or ()
    return intervals[0][0], intervals[-1][1]


@lru_cache(maxsize=4096)
def _group_size_everywhere(src: Period, dst: Period) -> int:
    """Return the group size if all days may be read: the maximum over one cycle."""
    length = longest_block(dst)
    if is_window(src):
        return (
            _ceil(length, src.days)
            if src.kind is PeriodKind.SLIDING
            else _most_blocks_met(length, src.days)
        )
    shape = fixed_length_and_phase(src)
    if shape is None:
        return _irregular_group_size(src, dst)
    n, phase = shape
    if is_window(dst):
        return _most_blocks_met(length, n)
    target = fixed_length_and_phase(dst)
    # `dst` blocks start at all residues modulo n that are congruent to their phase modulo the gcd.
    g = gcd(n, target[0] if target else CYCLE)
    spans = [(target[1], target[1] + target[0] - 1)] if target else cycle_blocks(dst)
    return max((n - g + (a - phase) % g + b - a) // n + 1 for a, b in spans)


def _irregular_group_size(src: Period, dst: Period) -> int:
    """Return the group size for an irregular `src` if all days may be read."""
    shape = (dst.days, 0) if is_window(dst) else fixed_length_and_phase(dst)
    if shape is None:
        return max(_cover(src, (span,)) for span in cycle_blocks(dst))
    m, phase = shape
    g = 1 if is_window(dst) else gcd(m, CYCLE)
    # A window meets the most blocks if it ends as early in its last block as its phase allows.
    firsts = (a - m + 1 + (phase - (a - m + 1)) % g for a, _ in cycle_blocks(src))
    return max(_cover(src, ((first, first + m - 1),)) for first in firsts)


@lru_cache(maxsize=65_536)
def _group_size_within(src: Period, dst: Period, intervals: Intervals) -> int:
    """Return the group size if only the days of `intervals` are read."""
    ceiling = min(_group_size_everywhere(src, dst), _cover(src, intervals))
    if ceiling == 1 or (is_window(src) and is_window(dst)):
        return ceiling
    best = 1
    for scanned, (first, last) in enumerate(_spans(src, dst, intervals)):
        if best == ceiling or scanned >= MAX_SCAN:
            return ceiling
        best = max(best, _cover(src, _clip(intervals, first, last)))
    return best


def _spans(src: Period, dst: Period, intervals: Intervals) -> Iterator[tuple[int, int]]:
    """Yield first and last day of the `dst` blocks that may meet the most `src` blocks.

    Only days of `intervals` count. If a window is moved to the left until it ends on the first day
    read of its last `src` block, it meets no fewer blocks; those windows suffice.
    """
    for low, high in intervals:
        if is_window(dst):
            numbers = range(block_index(src, low), block_index(src, high) + 1)
            lasts = (max(low, block_start(src, n)) for n in numbers)
            yield from ((last - dst.days + 1, last) for last in lasts)
        else:
            numbers = range(block_index(dst, low), block_index(dst, high) + 1)
            yield from ((block_start(dst, n), block_start(dst, n + 1) - 1) for n in numbers)


def _clip(intervals: Intervals, first: int, last: int) -> Intervals:
    return tuple((max(a, first), min(b, last)) for a, b in intervals if a <= last and b >= first)


def _cover(src: Period, intervals: Intervals) -> int:
    """Return how many `src` blocks are needed to cover the days of sorted disjoint intervals."""
    if src.kind is PeriodKind.SLIDING:
        return _cover_by_windows(src.days, intervals)
    if is_window(src):
        hull = intervals[-1][1] - intervals[0][0] + 1
        separately = sum(_most_blocks_met(b - a + 1, src.days) for a, b in intervals)
        return min(separately, _most_blocks_met(hull, src.days))
    count, previous = 0, None
    for first, last in intervals:
        low, high = block_index(src, first), block_index(src, last)
        count += high - low + (low != previous)
        previous = high
    return count


def _cover_by_windows(days: int, intervals: Intervals) -> int:
    """Return the smallest number of windows: a greedy cover from the left is optimal."""
    count, covered = 0, 0
    for first, last in intervals:
        low = max(first, covered + 1)
        if low <= last:
            added = _ceil(last - low + 1, days)
            count, covered = count + added, low + added * days - 1
    return count


def _most_blocks_met(length: int, days: int) -> int:
    """Return the largest number of blocks of `days` that `length` days can meet, at any phase."""
    return _ceil(length - 1, days) + 1


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
