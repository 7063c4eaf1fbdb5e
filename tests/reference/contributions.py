"""Naive contribution bounding: count the records of a list one by one."""

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


def limit_records(records: Sequence[Record], limits: Contributions) -> list[Record]:
    """Return the records that remain after each limit, in the order of their keys."""
    remaining = [r for r in records if limits.first <= r.day <= limits.last]
    remaining.sort(key=lambda record: record.key)
    finest = limits.limits[0].unit.period
    if limits.per_cell is not None:
        remaining = _first_of_each_group(
            [(r, (r.person, block(finest, r.day), r.cell)) for r in remaining], limits.per_cell
        )
    for limit in limits.limits:
        grouped = [(r, (r.person, block(limit.unit.period, r.day))) for r in remaining]
        remaining = _first_of_each_group(grouped, limit.maximum)
    return remaining


def _first_of_each_group(grouped: Sequence[tuple[Record, object]], maximum: int) -> list[Record]:
    counts: Counter[object] = Counter()
    first = []
    for record, group in grouped:
        counts[group] += 1
        if counts[group] <= maximum:
            first.append(record)
    return first


def block(period: Period | None, day: date) -> Hashable:
    """Return the block that contains a day."""
    if period is None:
        return None
    if period.start is not None:
        return tumbling_key(period.days, period.start)(day)
    return KEYS[str(period)](day)


def histogram(records: Sequence[Record], days: tuple[date, date]) -> Counter[str]:
    """Return the number of records per cell from the first to the last of two days."""
    return Counter(r.cell for r in records if days[0] <= r.day <= days[1])


def distances(one: Counter[str], other: Counter[str]) -> tuple[int, int]:
    """Return the L1 change and the square of the L2 change."""
    changes = [one[cell] - other[cell] for cell in {*one, *other}]
    return sum(map(abs, changes)), sum(change**2 for change in changes)
