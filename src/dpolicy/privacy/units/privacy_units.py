"""Units of privacy → their order, and how many of one lie in another (theory 0.1, 4.3 to 4.5).

A unit is whose data is protected (`entity`), how much of it at a time (`period`), and what counts
as a change (`relation`). Group sizes are exact over the whole Gregorian calendar and aware of the
days that a mechanism reads. Assumed, not checked: that it reads no other days (theory 5.4), and
that all days are of one time zone. Which entity covers which the policy knows, not this module.
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
    sliding,
    tumbling,
)

#: More blocks than this are not enumerated: the group size falls back to an upper bound.
MAX_SCAN = 6_000

#: The most blocks `blocks` will list (a century of days is 36,525).
MAX_BLOCKS = 100_000

#: The most separate intervals a mechanism may read.
MAX_INTERVALS = 1_000


class NeighbouringRelation(StrEnum):
    """What may differ between neighbouring databases (theory 0.1)."""

    ADD_REMOVE = "add-remove"
    CHANGE = "change"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """What a guarantee protects; without a period, all of the entity's data for all time."""

    name: str
    entity: str
    period: Period | None = None
    relation: NeighbouringRelation = NeighbouringRelation.ADD_REMOVE


@dataclass(frozen=True, slots=True)
class TouchedDays:
    """The days a mechanism reads: sorted disjoint intervals of day numbers, None at an open end."""

    intervals: tuple[tuple[int | None, int | None], ...]

    @property
    def bounded_intervals(self) -> tuple[tuple[int, int], ...] | None:
        """The intervals if all of them end; None if time is unbounded."""
        closed = tuple((a, b) for a, b in self.intervals if a is not None and b is not None)
        return closed if len(closed) == len(self.intervals) else None


@dataclass(frozen=True, slots=True, order=True)
class CalendarBlock:
    """One block of a period, both days included."""

    first: date
    last: date


def touched_days(*intervals: tuple[date | None, date | None]) -> TouchedDays:
    """The union of inclusive intervals; None stands for an open end."""
    if not 1 <= len(intervals) <= MAX_INTERVALS:
        raise InvalidValue("U004", f"give 1 to {MAX_INTERVALS} intervals, not `{len(intervals)}`")
    for first, last in intervals:
        for day in (first, last):
            if day is not None:
                check_day(day)
        if first is not None and last is not None and first > last:
            raise InvalidValue("U004", f"the interval from `{first}` to `{last}` holds no day")
    return TouchedDays(_merged(intervals))


def _merged(
    intervals: Iterable[tuple[date | None, date | None]],
) -> tuple[tuple[int | None, int | None], ...]:
    """Sorted, with overlapping and adjacent intervals joined, so that equal sets are equal."""
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
    """`month`, `sliding 30 days`, `30 days`, `30 days from 2026-01-05` and the like."""
    if text in _CALENDAR:
        return _CALENDAR[text]
    match = _DAYS.fullmatch(text)
    if match is None or (match[1] and match[3]):
        known = ", ".join(_CALENDAR)
        raise InvalidValue(
            "U001",
            f"unknown period `{text}`; help: one of {known}, `sliding 30 days`, `30 days` or "
            "`30 days from 2026-01-05`",
        )
    if match[1]:
        return sliding(int(match[2]))
    return tumbling(int(match[2]), _day(match[3]) if match[3] else None)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidValue("U003", f"`{text}` is not a day of the calendar") from None


def period_within(a: Period | None, b: Period | None) -> bool:
    """Whether every block of `a` lies inside one block of `b`; None, all time, is the top."""
    return b is None or (a is not None and group_size(b, a, None) == 1)


def group_size(src: Period | None, dst: Period | None, touched: TouchedDays | None) -> int | None:
    """How many `src` blocks the days read from one `dst` block can meet; None if unbounded.

    This is k_T of theory 4.3, the most over all `dst` blocks. Without `touched` every day may be
    read. For sliding `src` it is how many windows cover those days. Never too small; exact unless
    several intervals meet windows or more than `MAX_SCAN` blocks would have to be looked at.
    """
    if src is None or (src == dst and dst is not None):
        return 1
    pieces = touched.bounded_intervals if touched is not None else None
    if pieces is None:
        return None if dst is None else _everywhere(src, dst)
    return _cover(src, pieces) if dst is None else _within_pieces(src, dst, pieces)


def add_remove_size(
    src: Period | None, dst: Period | None, touched: TouchedDays | None
) -> int | None:
    """How many `src` units must be removed or added so that the data of one `dst` block is gone.

    A `src` block that lies only partly in the `dst` block is no removal of a whole unit: it takes
    two steps, out and the rest back in (theory 0.1, N1). Only the first and the last are partial.
    """
    size = group_size(src, dst, touched)
    if size is None or src == dst or _made_of(src, dst) or _inside_one(dst, touched):
        return size
    return 2 * size if src is None or is_window(src) else size + min(size, 2)


def _made_of(src: Period | None, dst: Period | None) -> bool:
    """Whether every `dst` block is a union of whole `src` blocks.

    Being within is not enough where `dst` slides: a window of 7 days cuts the weeks that it meets.
    Windows themselves may overlap, so shorter ones fill a longer one.
    """
    if dst is None or not period_within(src, dst):
        return dst is None
    both_slide = (
        src is not None and src.kind is PeriodKind.SLIDING and dst.kind is PeriodKind.SLIDING
    )
    return not is_window(dst) or both_slide or src == DAY


def _inside_one(dst: Period | None, touched: TouchedDays | None) -> bool:
    """Whether every `dst` block holds all of the days that are read, or none."""
    pieces = touched.bounded_intervals if touched is not None else None
    if dst is None or pieces is None:
        return dst is None
    first, last = pieces[0][0], pieces[-1][1]
    return first == last or (
        not is_window(dst) and block_index(dst, first) == block_index(dst, last)
    )


def blocks_between(period: Period, first: date, last: date) -> tuple[CalendarBlock, ...]:
    """The blocks that meet the days `first` to `last`, in order.

    Where any window may be a block (sliding, unknown phase) these are all windows.
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
    pieces = days.bounded_intervals or ()
    return pieces[0][0], pieces[-1][1]


@lru_cache(maxsize=4096)
def _everywhere(src: Period, dst: Period) -> int:
    """The group size when all days may be read: periodic, hence a maximum over one cycle."""
    length = longest_block(dst)
    if is_window(src):
        return (
            _ceil(length, src.days)
            if src.kind is PeriodKind.SLIDING
            else _any_phase(length, src.days)
        )
    shape = fixed_length_and_phase(src)
    if shape is None:
        return _irregular_everywhere(src, dst)
    n, phase = shape
    if is_window(dst):
        return _any_phase(length, n)
    target = fixed_length_and_phase(dst)
    # Block starts take every residue modulo n that is congruent to theirs modulo the gcd.
    g = gcd(n, target[0] if target else CYCLE)
    spans = [(target[1], target[1] + target[0] - 1)] if target else cycle_blocks(dst)
    return max((n - g + (a - phase) % g + b - a) // n + 1 for a, b in spans)


def _irregular_everywhere(src: Period, dst: Period) -> int:
    shape = (dst.days, 0) if is_window(dst) else fixed_length_and_phase(dst)
    if shape is None:
        return max(_cover(src, (span,)) for span in cycle_blocks(dst))
    m, phase = shape
    g = 1 if is_window(dst) else gcd(m, CYCLE)
    # The most blocks are met by a window that ends as early in its last block as its phase allows.
    firsts = (a - m + 1 + (phase - (a - m + 1)) % g for a, _ in cycle_blocks(src))
    return max(_cover(src, ((first, first + m - 1),)) for first in firsts)


@lru_cache(maxsize=65_536)
def _within_pieces(src: Period, dst: Period, pieces: tuple[tuple[int, int], ...]) -> int:
    """The group size when only the days of `pieces` are read."""
    ceiling = min(_everywhere(src, dst), _cover(src, pieces))
    if ceiling == 1 or (is_window(src) and is_window(dst)):
        return ceiling
    best = 1
    for scanned, (first, last) in enumerate(_spans(src, dst, pieces)):
        if best == ceiling or scanned >= MAX_SCAN:
            return ceiling
        best = max(best, _cover(src, _clipped(pieces, first, last)))
    return best


def _spans(
    src: Period, dst: Period, pieces: tuple[tuple[int, int], ...]
) -> Iterator[tuple[int, int]]:
    """First and last days of the `dst` blocks that may meet the most `src` blocks inside `pieces`.

    A window can be moved left until it ends on the first day read of its last `src` block: it then
    meets no fewer blocks, so those windows suffice.
    """
    for low, high in pieces:
        if is_window(dst):
            numbers = range(block_index(src, low), block_index(src, high) + 1)
            lasts = (max(low, block_start(src, n)) for n in numbers)
            yield from ((last - dst.days + 1, last) for last in lasts)
        else:
            numbers = range(block_index(dst, low), block_index(dst, high) + 1)
            yield from ((block_start(dst, n), block_start(dst, n + 1) - 1) for n in numbers)


def _clipped(
    pieces: tuple[tuple[int, int], ...], first: int, last: int
) -> tuple[tuple[int, int], ...]:
    return tuple((max(a, first), min(b, last)) for a, b in pieces if a <= last and b >= first)


def _cover(src: Period, pieces: tuple[tuple[int, int], ...]) -> int:
    """How many `src` blocks are needed to cover the days of sorted disjoint intervals."""
    if src.kind is PeriodKind.SLIDING:
        return _cover_by_windows(src.days, pieces)
    if is_window(src):
        hull = pieces[-1][1] - pieces[0][0] + 1
        apart = sum(_any_phase(b - a + 1, src.days) for a, b in pieces)
        return min(apart, _any_phase(hull, src.days))
    count, previous = 0, None
    for first, last in pieces:
        low, high = block_index(src, first), block_index(src, last)
        count += high - low + (low != previous)
        previous = high
    return count


def _cover_by_windows(days: int, pieces: tuple[tuple[int, int], ...]) -> int:
    """The least number of windows, laid greedily from the left."""
    count, covered = 0, 0
    for first, last in pieces:
        low = max(first, covered + 1)
        if low <= last:
            more = _ceil(last - low + 1, days)
            count, covered = count + more, low + more * days - 1
    return count


def _any_phase(length: int, days: int) -> int:
    """The most blocks of `days` that a run of `length` days can meet, whatever the phase."""
    return _ceil(length - 1, days) + 1


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
