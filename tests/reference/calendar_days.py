"""Naive calendar of privacy units, based on the standard library's calendar.

The naive twin of `privacy/units/privacy_units.py`: a block is the set of days that share a key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from datetime import date, timedelta

Key = Callable[[date], Hashable]

KEYS: dict[str, Key] = {
    "day": lambda d: d,
    "week": lambda d: d.isocalendar()[:2],
    "sunday-week": lambda d: d - timedelta(days=(d.weekday() + 1) % 7),
    "month": lambda d: (d.year, d.month),
    "quarter": lambda d: (d.year, (d.month - 1) // 3),
    "half": lambda d: (d.year, (d.month - 1) // 6),
    "year": lambda d: d.year,
    "iso-year": lambda d: d.isocalendar()[0],
}


def tumbling_key(days: int, start: date) -> Key:
    """Return the key of blocks of `days` days; one of the blocks starts on `start`."""
    return lambda d: (d - start).days // days


def days_between(first: date, last: date) -> list[date]:
    """Return every day, both ends included."""
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def group_by_block(key: Key, days: Iterable[date]) -> list[list[date]]:
    """Return the days grouped by block, in order."""
    groups: dict[Hashable, list[date]] = {}
    for day in days:
        groups.setdefault(key(day), []).append(day)
    return list(groups.values())


def max_touched_blocks(
    src: Key, windows: Iterable[Iterable[date]], read: set[date] | None = None
) -> int:
    """Return the largest number of `src` blocks that one window touches."""
    return max(len({src(d) for d in window if read is None or d in read}) for window in windows)


def windows(days: list[date], length: int) -> list[list[date]]:
    """Return every window of consecutive days that touches the given days."""
    first, last = days[0] - timedelta(days=length - 1), days[-1]
    starts = days_between(first, last)
    return [days_between(start, start + timedelta(days=length - 1)) for start in starts]


def steps_to_remove(src: Key, window: Iterable[date], read: set[date]) -> int:
    """Return the steps to empty a window by whole `src` blocks; a cut block takes two."""
    inside = {d for d in window if d in read}
    touched = {src(d) for d in inside}
    cut = {src(d) for d in read if src(d) in touched and d not in inside}
    return len(touched) + len(cut)


def steps_between(days: int, length: int, block: tuple[int, int]) -> int:
    """Return the add-remove steps that empty a block, for the worst data, by breadth-first search.

    Data exist on some of `days` days. A step removes all data of one window of `length` days, or
    adds any data to an empty window. Windows may reach beyond the days that are read.
    """
    everything = range(1 << days)
    inside = sum(1 << day for day in range(block[0], block[1] + 1))
    masks = {
        sum(1 << day for day in range(max(first, 0), min(first + length, days)))
        for first in range(1 - length, days)
    }

    def neighbours(state: int) -> set[int]:
        removed = {state & ~mask for mask in masks}
        added = {state | (part & mask) for mask in masks if not state & mask for part in everything}
        return removed | added

    def distance(start: int) -> int:
        seen, frontier, steps = {start}, {start}, 0
        while start & ~inside not in seen:
            frontier = {other for state in frontier for other in neighbours(state)} - seen
            seen |= frontier
            steps += 1
        return steps

    return max(distance(start) for start in everything)
