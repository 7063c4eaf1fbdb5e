"""Naive blocks of a rule: list every block of every axis.

The module follows theory 0.2, 4.3 and 6 and language 1 to 3, not the code: values are listed, days
are dates in a set, and a block is a value of each partition that splits the rule and a set of days.
All days before the first day that a release names are equivalent, and so are all after the last:
one day, decades away, represents each side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache
from itertools import product
from typing import Any

from tests.reference import rules as twin
from tests.reference.rules import PolicyDict, Rule

from dpolicy.privacy.loss_distribution.loss_run import LossRun

#: A value of a partition: listed, or a whole number.
Value = str | int
#: A union of boxes: the values of each partition that a box restricts.
Boxes = tuple[Mapping[str, frozenset[Value]], ...]
LONG_AGO, ONE_DAY_FAR_OFF = date(1995, 5, 17), date(2055, 5, 19)
DAY = timedelta(days=1)


@dataclass(frozen=True)
class PlacedMechanism(twin.Mechanism):
    """A mechanism with the boxes and days that it reads; none means all units or static data.

    `runs` are its loss pairs by unit, for per-release rules under accounting defaults 3.
    """

    boxes: Boxes = ()
    time: Mapping[str, str] | None = None
    unknown: bool = False
    runs: Mapping[str, LossRun | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """A block: one value per partition that splits the rule, and the days of a time block."""

    values: Mapping[str, Value] = field(default_factory=dict)
    time: str | None = None
    days: frozenset[date] = frozenset()

    @property
    def location(self) -> dict[str, Value]:
        """Return the location of the block; the time before all named days has no name."""
        named = self.time is not None and self.days != {LONG_AGO}
        return {**self.values, **({"time": self.time} if named and self.time else {})}


EVERYWHERE = Block()


def region(policy: PolicyDict, fields: Mapping[str, Any]) -> Boxes | None:
    """Return the boxes of a mechanism; None if one is empty or not valid for the policy."""
    partitions = policy.get("schema", {}).get("partitions", {})
    selection = fields.get("where", ())
    boxes: list[Mapping[str, frozenset[Value]]] = []
    for box in [selection] if isinstance(selection, Mapping) else selection:
        values = {name: frozenset(_selected_values(selected)) for name, selected in box.items()}
        if any(
            name not in partitions or not _is_valid_selection(partitions[name], values[name])
            for name in values
        ):
            return None
        boxes.append(values)
    return tuple(boxes)


def _selected_values(selected: Any) -> Iterable[Value]:
    if isinstance(selected, Mapping):
        return range(int(selected["from"]), int(selected["to"]) + 1)
    return [selected] if isinstance(selected, str) else list(selected)


def _is_valid_selection(partition: Mapping[str, Any], values: frozenset[Value]) -> bool:
    return bool(values) and values <= set(partition_values(partition))


def partition_values(partition: Mapping[str, Any]) -> list[Value]:
    """Return all values of a partition, in order."""
    return list(partition.get("values") or range(partition["from"], partition["to"] + 1))


def can_split(policy: PolicyDict, rule: Rule, name: str) -> bool:
    """Return whether a partition splits a rule: no neighbour may lie in two of its blocks."""
    schema = policy["schema"]
    is_read_attribute = name in schema.get("attributes", {}) and twin.reads(rule.predicates, name)
    is_stable = schema["partitions"][name].get("stable", True) and not can_be_moved(policy, rule)
    return bool(is_stable) and has_single_value(policy, rule, name) and not is_read_attribute


def has_single_value(policy: PolicyDict, rule: Rule, name: str) -> bool:
    """Return whether the rule's entity has one value: it is the owner, or the owner covers it."""
    units = policy["units"]
    entities = {entity_name(policy, unit) for unit in units}
    smallest = [entity for entity in entities if not units.get(entity, {}).get("covers")]
    owner = policy["schema"]["partitions"][name].get("of")
    if owner is None and len(smallest) > 1:
        return False
    owner, entity = owner or smallest[0], entity_name(policy, rule.unit)
    return bool(entity == owner or entity in units.get(owner, {}).get("covers", ()))


def can_be_moved(policy: PolicyDict, rule: Rule) -> bool:
    """Return whether a neighbour may move a unit to another block."""
    stated = policy["units"][rule.unit].get("relation")
    return bool((stated or policy["accounting"].get("relation")) == "replace")


def entity_name(policy: PolicyDict, unit: str) -> str:
    """Return the entity of a unit: the stated one, or the first part of its name."""
    entities = [name for name, definition in policy["units"].items() if "period" not in definition]
    prefixes = [name for name in entities if f"{unit}-".startswith(f"{name}-")]
    return str(policy["units"][unit].get("of") or max(prefixes, key=len, default=unit))


def blocks(
    policy: PolicyDict, rule: Rule, mechanisms: Sequence[PlacedMechanism]
) -> Iterator[Block]:
    """Return all blocks of a rule: partitions and values in policy order, then time."""
    partitions = policy["schema"].get("partitions", {})
    split = [name for name in partitions if can_split(policy, rule, name)]
    period = None if can_be_moved(policy, rule) else policy["units"][rule.unit].get("period")
    times = time_blocks(period, named_days(mechanisms))
    for values in product(*(partition_values(partitions[name]) for name in split)):
        for time, days in times:
            yield Block(dict(zip(split, values, strict=True)), time, days)


def touches(mechanism: PlacedMechanism, block: Block) -> bool:
    """Return whether a mechanism reads a part of a block."""
    inside = not mechanism.boxes or any(
        all(value in box.get(name, {value}) for name, value in block.values.items())
        for box in mechanism.boxes
    )
    time_matches = block.time is None or any(is_read(mechanism.time, day) for day in block.days)
    return mechanism.unknown or (inside and time_matches)


def is_read(time: Mapping[str, str] | None, day: date) -> bool:
    """Return whether a day lies within `from` and `to`, both optional."""
    interval, iso = time or {}, day.isoformat()
    return interval.get("from", iso) <= iso <= interval.get("to", iso)


def named_days(mechanisms: Sequence[PlacedMechanism]) -> frozenset[date]:
    """Return every day from the first to the last named one, and one far away on each side."""
    ends = [date.fromisoformat(day) for m in mechanisms for day in (m.time or {}).values()]
    between = (max(ends) - min(ends)).days + 1 if ends else 0
    return frozenset({LONG_AGO, ONE_DAY_FAR_OFF, *(min(ends) + n * DAY for n in range(between))})


@cache
def time_blocks(
    period: str | None, days: frozenset[date]
) -> list[tuple[str | None, frozenset[date]]]:
    """Return the blocks of a period that contain one of the days, by name, earliest first."""
    if period is None:
        return [(None, days)]
    if period.startswith("sliding "):
        length = int(period.split()[1])
        starts = sorted({day - n * DAY for day in days for n in range(length)})
        windows = [[start + n * DAY for n in range(length)] for start in starts]
        return [(f"{w[0]}/{w[-1]}", days & frozenset(w)) for w in windows]
    names: dict[str, set[date]] = {}
    for day in sorted(days):
        names.setdefault(block_name(period, day), set()).add(day)
    return [(name, frozenset(block_days)) for name, block_days in names.items()]


def block_name(period: str, day: date) -> str:
    """Return the name of the calendar block that contains a day."""
    year, week, _ = day.isocalendar()
    return {
        "day": f"{day}",
        "week": f"{year}-W{week:02}",
        "month": f"{day:%Y-%m}",
        "quarter": f"{day.year}-Q{(day.month + 2) // 3}",
        "year": f"{day.year}",
    }[period]
