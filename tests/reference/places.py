"""Naive blocks of a rule: every block of every axis, one by one.

It follows theory 0.2, 4.3 and 6 and language 1 to 3, not the code: values are listed, days are
dates in a set, and a block is a value of each partition that splits the rule and a set of days. All
days before the first day that a release names are equivalent, and so are all after the last: one
day, decades away, represents each side.
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

#: A value of a partition: listed, or a whole number.
Value = str | int
#: A union of boxes: the values of each partition that a box restricts.
Boxes = tuple[Mapping[str, frozenset[Value]], ...]
LONG_AGO, ONE_DAY_FAR_OFF = date(1995, 5, 17), date(2055, 5, 19)
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Placed(twin.Mechanism):
    """A mechanism with the boxes and days that it reads; none means all units or static data."""

    boxes: Boxes = ()
    time: Mapping[str, str] | None = None
    unknown: bool = False


@dataclass(frozen=True)
class Block:
    """A block: one value per partition that splits the rule, and the days of a time block."""

    values: Mapping[str, Value] = field(default_factory=dict)
    time: str | None = None
    days: frozenset[date] = frozenset()

    @property
    def place(self) -> dict[str, Value]:
        """Return the location of the block; the time before all named days has no name."""
        named = self.time is not None and self.days != {LONG_AGO}
        return {**self.values, **({"time": self.time} if named and self.time else {})}


EVERYWHERE = Block()


def region(policy: PolicyDict, said: Mapping[str, Any]) -> Boxes | None:
    """Return the boxes of a mechanism; None if one is empty or not valid for the policy."""
    known = policy.get("schema", {}).get("partitions", {})
    where = said.get("where", ())
    boxes: list[Mapping[str, frozenset[Value]]] = []
    for box in [where] if isinstance(where, Mapping) else where:
        chosen = {name: frozenset(_chosen(selected)) for name, selected in box.items()}
        if any(name not in known or not _within(known[name], chosen[name]) for name in chosen):
            return None
        boxes.append(chosen)
    return tuple(boxes)


def _chosen(selected: Any) -> Iterable[Value]:
    if isinstance(selected, Mapping):
        return range(int(selected["from"]), int(selected["to"]) + 1)
    return [selected] if isinstance(selected, str) else list(selected)


def _within(partition: Mapping[str, Any], chosen: frozenset[Value]) -> bool:
    return bool(chosen) and chosen <= set(values_of(partition))


def values_of(partition: Mapping[str, Any]) -> list[Value]:
    """Return all values of a partition, in order."""
    return list(partition.get("values") or range(partition["from"], partition["to"] + 1))


def splits(policy: PolicyDict, rule: Rule, name: str) -> bool:
    """Return whether a partition may split a rule: no neighbour may lie in two of its blocks."""
    schema = policy["schema"]
    about = name in schema.get("attributes", {}) and twin.reads(rule.predicates, name)
    stable = schema["partitions"][name].get("stable", True) and not is_replaced(policy, rule)
    return bool(stable) and has_one(policy, rule, name) and not about


def has_one(policy: PolicyDict, rule: Rule, name: str) -> bool:
    """Return whether the entity of a rule has one value: it is the owner, or lies inside it."""
    units = policy["units"]
    everybody = {entity_of(policy, unit) for unit in units}
    single = [who for who in everybody if not units.get(who, {}).get("covers")]
    owner = policy["schema"]["partitions"][name].get("of")
    if owner is None and len(single) > 1:
        return False
    owner, who = owner or single[0], entity_of(policy, rule.unit)
    return bool(who == owner or who in units.get(owner, {}).get("covers", ()))


def is_replaced(policy: PolicyDict, rule: Rule) -> bool:
    """Return whether a neighbour may move a unit to another block."""
    own = policy["units"][rule.unit].get("relation")
    return bool((own or policy["accounting"].get("relation")) == "replace")


def entity_of(policy: PolicyDict, unit: str) -> str:
    """Return the entity of a unit: the stated one, or the first part of its name."""
    whole = [name for name, said in policy["units"].items() if "period" not in said]
    named = [name for name in whole if f"{unit}-".startswith(f"{name}-")]
    return str(policy["units"][unit].get("of") or max(named, key=len, default=unit))


def blocks(policy: PolicyDict, rule: Rule, mechanisms: Sequence[Placed]) -> Iterator[Block]:
    """Return all blocks of a rule: partitions and values in policy order, then time."""
    partitions = policy["schema"].get("partitions", {})
    split = [name for name in partitions if splits(policy, rule, name)]
    period = None if is_replaced(policy, rule) else policy["units"][rule.unit].get("period")
    times = spans(period, mentioned(mechanisms))
    for values in product(*(values_of(partitions[name]) for name in split)):
        for time, days in times:
            yield Block(dict(zip(split, values, strict=True)), time, days)


def touches(mechanism: Placed, block: Block) -> bool:
    """Return whether a mechanism reads a part of a block."""
    inside = not mechanism.boxes or any(
        all(value in box.get(name, {value}) for name, value in block.values.items())
        for box in mechanism.boxes
    )
    read = block.time is None or any(is_read(mechanism.time, day) for day in block.days)
    return mechanism.unknown or (inside and read)


def is_read(time: Mapping[str, str] | None, day: date) -> bool:
    """Return whether a day lies within `from` and `to`, both optional."""
    said, iso = time or {}, day.isoformat()
    return said.get("from", iso) <= iso <= said.get("to", iso)


def mentioned(mechanisms: Sequence[Placed]) -> frozenset[date]:
    """Return every day from the first to the last named one, and one far away on each side."""
    ends = [date.fromisoformat(day) for m in mechanisms for day in (m.time or {}).values()]
    between = (max(ends) - min(ends)).days + 1 if ends else 0
    return frozenset({LONG_AGO, ONE_DAY_FAR_OFF, *(min(ends) + n * DAY for n in range(between))})


@cache
def spans(period: str | None, days: frozenset[date]) -> list[tuple[str | None, frozenset[date]]]:
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
        names.setdefault(name_of(period, day), set()).add(day)
    return [(name, frozenset(held)) for name, held in names.items()]


def name_of(period: str, day: date) -> str:
    """Return the name of the calendar block that contains a day."""
    year, week, _ = day.isocalendar()
    return {
        "day": f"{day}",
        "week": f"{year}-W{week:02}",
        "month": f"{day:%Y-%m}",
        "quarter": f"{day.year}-Q{(day.month + 2) // 3}",
        "year": f"{day.year}",
    }[period]
