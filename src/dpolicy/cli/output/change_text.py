"""Text of the differences between two policies: budgets before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from dpolicy.cli.output.rule_table import (
    blank_repeated_names,
    common_delta,
    delta_heading,
    fit_table,
    format_table,
    short_budget,
    table_row,
)
from dpolicy.cli.output.rule_text import section_title
from dpolicy.privacy.budget import Budget, EpsilonDelta
from dpolicy.privacy.number_text import format_down
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.groups.rule_lines import (
    group_rules,
    setting_columns,
    sort_lines,
)
from dpolicy.rules.policy_diff import RuleChange
from dpolicy.rules.rule import SettingAxis

#: Kinds of changes, in the order of their tables.
KINDS = ("added", "removed", "tightened", "loosened", "changed", "changed scope")

#: Mark of a change that leaves the budget as it is.
_SAME = "unchanged"


def flat_changes_text(changes: Sequence[RuleChange]) -> list[str]:
    """Return one line per changed rule."""
    names = max((len(change.name) for change in changes), default=0)
    units = max((len(change.unit) for change in changes), default=0)
    lines = [
        f"{change.kind:<14} {change.name:<{names}}  unit {change.unit:<{units}}  "
        f"{change_text(change)}"
        for change in changes
    ]
    return [*lines, *_footnote(lines)]


def grouped_changes_text(
    old: CompiledPolicy, new: CompiledPolicy, changes: Sequence[RuleChange]
) -> list[str]:
    """Return a table per section and kind: one line per policy, risk and distinct budgets."""
    counts = Counter(change.kind for change in changes)
    lines = [", ".join(f"{counts[kind]} {kind}" for kind in KINDS if kind in counts)]
    for before, after in zip(old.sections, new.sections, strict=True):
        each_release = after.rules.each_release
        for kind in KINDS:
            own = [c for c in changes if (c.kind, c.rule.each_release) == (kind, each_release)]
            if own:
                axes = (after.rules.axes, before.rules.axes)
                table = _changes_table(own, axes, new.policy_set.risk_levels)
                lines += ["", _table_title(own), *table]
    return [*lines, *_footnote(lines)]


def _table_title(changes: Sequence[RuleChange]) -> str:
    """Return kind and section of the changes of a table, and δ before and after if it is common."""
    kind, rule = changes[0].kind, changes[0].rule
    before, after = _common_deltas(changes)
    delta = delta_heading(before or after)
    if before and after and before != after:
        delta = f"{delta} → {format_down(after)}"
    return f"{kind} {section_title(each_release=rule.each_release)}{delta}"


def _common_deltas(changes: Sequence[RuleChange]) -> tuple[Fraction | None, Fraction | None]:
    return (
        common_delta(change.old.budget for change in changes if change.old),
        common_delta(change.new.budget for change in changes if change.new),
    )


def _changes_table(
    changes: Sequence[RuleChange],
    axes: Sequence[tuple[SettingAxis, ...]],
    risk_levels: Sequence[str],
) -> list[str]:
    deltas = _common_deltas(changes)

    def build(row_axes: int, join_units: bool) -> list[str]:
        columns = dict.fromkeys(c for part in axes for c in setting_columns(part, row_axes))
        lines = group_rules(
            changes, lambda change: change.rule, _budgets, row_axes, join_units=join_units
        )
        rows = [
            table_row(line, list(columns), lambda cell: change_text(cell[0], *deltas), "")
            for line in sort_lines(lines, risk_levels)
        ]
        return format_table(blank_repeated_names(rows), list(columns))

    return fit_table(max(map(len, axes)), build)


def _budgets(change: RuleChange) -> tuple[Budget | None, Budget | None]:
    return (
        change.old.budget if change.old else None,
        change.new.budget if change.new else None,
    )


def change_text(
    change: RuleChange, old_delta: Fraction | None = None, new_delta: Fraction | None = None
) -> str:
    """Return the budgets before and after: `ε 1 → 0.5`.

    δ is left out if it stays the same, or if it is the common δ of a heading.
    """
    before, after = _budgets(change)
    if before is None or after is None:
        sides = ((before, old_delta), (after, new_delta))
        return "".join(short_budget(budget, delta) for budget, delta in sides if budget)
    if before == after:
        return short_budget(before, old_delta) if change.kind == "changed scope" else _SAME
    delta = common_delta([before, after])
    if delta is not None and {type(before), type(after)} == {EpsilonDelta}:
        old_delta = new_delta = delta
    return _join_sides(short_budget(before, old_delta), short_budget(after, new_delta))


def _join_sides(before: str, after: str) -> str:
    """Join two budgets; the second has no symbol if both are one number of the same notion."""
    (symbol, *numbers), (new_symbol, *new_numbers) = before.split(), after.split()
    if before == after:
        return before
    if symbol == new_symbol and len(numbers) == len(new_numbers) == 1:
        return f"{before} → {new_numbers[0]}"
    return f"{before} → {after}"


def _footnote(lines: Sequence[str]) -> list[str]:
    """Explain a change that leaves the budget as it is."""
    if not any(_SAME in line for line in lines):
        return []
    return [f"{_SAME}: the budget is the same, but its thresholds differ (profile or accounting)"]
