"""Naive contribution bounding: records in a list, counted one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import date

from tests.reference.calendar_days import KEYS, tumbling_key

from dpolicy.integrations.contributions import Contributions
from dpolicy.privacy.units.calendar import Period


@dataclass(frozen=True)
class Record:
    """One record of a person."""

    person: str
    day: date
    key: int
    cell: str


def kept(records: Sequence[Record], limits: Contributions) -> list[Record]:
    """Return the records that remain after each limit, in the order of their keys."""
    left = [r for r in records if limits.first <= r.day <= limits.last]
    left.sort(key=lambda record: record.key)
    finest = limits.limits[0].unit.period
    if limits.per_cell is not None:
        left = _first(
            [(r, (r.person, block(finest, r.day), r.cell)) for r in left], limits.per_cell
        )
    for limit in limits.limits:
        named = [(r, (r.person, block(limit.unit.period, r.day))) for r in left]
        left = _first(named, limit.maximum)
    return left


def _first(named: Sequence[tuple[Record, object]], most: int) -> list[Record]:
    seen: Counter[object] = Counter()
    found = []
    for record, group in named:
        seen[group] += 1
        if seen[group] <= most:
            found.append(record)
    return found


def block(period: Period | None, day: date) -> Hashable:
    """Return the block that contains a day."""
    if period is None:
        return None
    if period.start is not None:
        return tumbling_key(period.days, period.start)(day)
    return KEYS[str(period)](day)


def histogram(records: Sequence[Record], about: tuple[date, date]) -> Counter[str]:
    """Return the number of records per cell for some days."""
    return Counter(r.cell for r in records if about[0] <= r.day <= about[1])


def distances(one: Counter[str], other: Counter[str]) -> tuple[int, int]:
    """Return the L1 change and the square of the L2 change."""
    changes = [one[cell] - other[cell] for cell in {*one, *other}]
    return sum(map(abs, changes)), sum(change**2 for change in changes)
