"""Naive twin of `rules.groups.rule_lines`: compare every rule with every other rule."""

from __future__ import annotations

from collections.abc import Sequence

from dpolicy.privacy.budget import Budget
from dpolicy.rules.rule import Rule

#: What makes two rules rules of the same base rule and row.
_Row = tuple[object, ...]


def lines(rules: Sequence[Rule], row_axes: int, *, join_units: bool) -> set[frozenset[int]]:
    """Return the lines as sets of positions in `rules`."""
    return {
        frozenset(
            other
            for other in range(len(rules))
            if share_line(rules, rules[position], rules[other], row_axes, join_units=join_units)
        )
        for position in range(len(rules))
    }


def share_line(rules: Sequence[Rule], a: Rule, b: Rule, row_axes: int, *, join_units: bool) -> bool:
    """Return whether two rules are in one line, by definition."""
    if common(a, row_axes) != common(b, row_axes) or cells(rules, a, row_axes) != cells(
        rules, b, row_axes
    ):
        return False
    if a.unit == b.unit:
        return True
    return join_units and members(rules, a, row_axes) == members(rules, b, row_axes)


def common(rule: Rule, row_axes: int) -> tuple[object, ...]:
    """Return what all rules of a line have in common."""
    head = tuple(setting.name for setting in rule.settings[:row_axes])
    return rule.each_release, rule.base.policy, rule.base.risk, rule.base.level, head


def cells(rules: Sequence[Rule], rule: Rule, row_axes: int) -> set[tuple[str, Budget]]:
    """Return the columns and budgets of the rules of the same base rule."""
    return {
        (" × ".join(setting.name for setting in other.settings[row_axes:]), other.budget)
        for other in rules
        if (other.base, common(other, row_axes)) == (rule.base, common(rule, row_axes))
    }


def members(rules: Sequence[Rule], rule: Rule, row_axes: int) -> set[str]:
    """Return the attributes or categories with the same cells for the unit of a rule."""
    own = cells(rules, rule, row_axes)
    return {
        other.base.subject
        for other in rules
        if other.unit == rule.unit
        and common(other, row_axes) == common(rule, row_axes)
        and cells(rules, other, row_axes) == own
    }
