"""Lines of rules: rules of one base policy and risk level that have the same cells.

A policy set of 60 attributes, 3 units and 2 extensions has hundreds of rules, but few distinct
budgets. A line has the rules of one base policy, risk level and membership level, with one cell for
each combination of settings. Attributes or categories with the same cells share a line, and so do
units with the same cells for the same attributes or categories.

The lines are a partition of the rules: every rule is in one cell of one line.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Generic, TypeVar

from dpolicy.rules.rule import BaseRule, Rule, SettingAxis

_Item = TypeVar("_Item")

#: Names of settings, one for each extension.
Settings = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LineKey:
    """What all rules of a line have in common, beside their cells.

    `settings` are those of the extensions that are rows.
    """

    policy: str
    risk: str
    level: str
    settings: Settings
    each_release: bool


@dataclass(frozen=True, slots=True)
class RuleLine(Generic[_Item]):
    """Items of the rules of one line, by column; `members` are attributes or categories."""

    key: LineKey
    units: tuple[str, ...]
    members: tuple[str, ...]
    cells: Mapping[Settings, tuple[_Item, ...]]

    @property
    def items(self) -> tuple[_Item, ...]:
        """The items of all cells."""
        return tuple(chain.from_iterable(self.cells.values()))


def group_rules(
    items: Iterable[_Item],
    rule: Callable[[_Item], Rule],
    cell: Callable[[_Item], Hashable],
    row_axes: int = 0,
    *,
    join_units: bool = True,
) -> list[RuleLine[_Item]]:
    """Group items into lines, in the order of their first items.

    `rule` is the rule of an item, different for each item. Items with different values of `cell`
    are in different cells. The settings of the first `row_axes` extensions are rows. Without
    `join_units`, every line has one unit.
    """
    by_cells: dict[tuple[object, ...], list[_Row[_Item]]] = {}
    for row in _rows(items, rule, row_axes):
        cells = frozenset((settings, cell(item)) for settings, item in row.cells.items())
        by_cells.setdefault((row.key, row.base.unit, cells), []).append(row)
    by_members: dict[tuple[object, ...], list[_Row[_Item]]] = {}
    for (key, unit, *own), rows in by_cells.items():
        members = tuple(row.base.subject for row in rows)
        place = (key, *own, members, None if join_units else unit)
        by_members.setdefault(place, []).extend(rows)
    return [_line(rows) for rows in by_members.values()]


def sort_lines(
    lines: Iterable[RuleLine[_Item]], risk_levels: Sequence[str]
) -> list[RuleLine[_Item]]:
    """Sort lines by section, policy, risk level and membership level; the highest risk comes first.

    Policies and membership levels keep the order of their first lines.
    """
    listed = list(lines)
    policies = _ranks(line.key.policy for line in listed)
    levels = _ranks(line.key.level for line in listed)
    risks = _ranks((*risk_levels, *(line.key.risk for line in listed)))
    return sorted(
        listed,
        key=lambda line: (
            line.key.each_release,
            policies[line.key.policy],
            -risks[line.key.risk],
            levels[line.key.level],
        ),
    )


def _ranks(names: Iterable[str]) -> dict[str, int]:
    return {name: rank for rank, name in enumerate(dict.fromkeys(names))}


def setting_columns(axes: Sequence[SettingAxis], row_axes: int = 0) -> list[Settings]:
    """Return the combinations of settings that are columns, in the order of the policy."""
    return list(product(*([setting.name for setting in axis] for axis in axes[row_axes:])))


@dataclass(frozen=True, slots=True)
class _Row(Generic[_Item]):
    """Items of one base rule under the same row settings, by column."""

    key: LineKey
    base: BaseRule
    cells: dict[Settings, _Item]


def _rows(
    items: Iterable[_Item], rule: Callable[[_Item], Rule], row_axes: int
) -> Iterable[_Row[_Item]]:
    rows: dict[tuple[object, ...], _Row[_Item]] = {}
    for item in items:
        own = rule(item)
        settings = tuple(setting.name for setting in own.settings)
        head, column = settings[:row_axes], settings[row_axes:]
        place = (own.each_release, own.base.name, own.unit, head)
        if place not in rows:
            key = LineKey(own.base.policy, own.base.risk, own.base.level, head, own.each_release)
            rows[place] = _Row(key, own.base, {})
        rows[place].cells[column] = item
    return rows.values()


def _line(rows: Sequence[_Row[_Item]]) -> RuleLine[_Item]:
    cells: dict[Settings, list[_Item]] = {}
    for row in rows:
        for settings, item in row.cells.items():
            cells.setdefault(settings, []).append(item)
    return RuleLine(
        rows[0].key,
        tuple(dict.fromkeys(row.base.unit for row in rows)),
        tuple(dict.fromkeys(row.base.subject for row in rows if row.base.subject)),
        {settings: tuple(items) for settings, items in cells.items()},
    )
