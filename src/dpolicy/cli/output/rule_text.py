"""Text of rules: one line per rule, or one line for all rules of a policy with the same budgets."""

from __future__ import annotations

from collections.abc import Sequence

from dpolicy.cli.output.rule_table import (
    blank_repeated_names,
    common_delta,
    delta_heading,
    fit_table,
    format_table,
    short_budget,
    table_row,
)
from dpolicy.privacy.budget import format_budget
from dpolicy.rules.compiler import CompiledPolicy, CompiledSection
from dpolicy.rules.groups.rule_lines import (
    group_rules,
    setting_columns,
    sort_lines,
)
from dpolicy.rules.rule import Rule

#: Mark of a cell whose rules are pruned.
_PRUNED = "·"

#: A rule, and its witness if it is pruned.
ListedRule = tuple[Rule, Rule | None]


def section_title(*, each_release: bool) -> str:
    """Return the heading of the rules of a section."""
    return "per-release rules" if each_release else "cumulative rules"


def flat_rules_text(rules: Sequence[ListedRule]) -> list[str]:
    """Return one line per rule; a pruned rule is marked, and its witness follows."""
    names = max((len(rule.name) for rule, _ in rules), default=0)
    units = max((len(rule.unit) for rule, _ in rules), default=0)
    lines = []
    for each_release in (False, True):
        part = [(r, w) for r, w in rules if r.each_release is each_release]
        if part:
            lines += ["", section_title(each_release=each_release)]
        for rule, witness in part:
            mark = "  " if witness is None else "· "
            line = f"{mark}{rule.name:<{names}}  {rule.unit:<{units}}  {format_budget(rule.budget)}"
            lines.append(line if witness is None else f"{line}   ⇐ {_witness_text(witness, rule)}")
    return lines


def _witness_text(witness: Rule, rule: Rule) -> str:
    return witness.name if witness.unit == rule.unit else f"{witness.name} @ {witness.unit}"


def grouped_rules_text(policy: CompiledPolicy, rules: Sequence[Rule]) -> list[str]:
    """Return a table for each section: one line per policy, risk and distinct budgets."""
    lines = []
    for section in policy.sections:
        own = [rule for rule in rules if rule.each_release is section.rules.each_release]
        if own:
            lines += ["", *_section_text(section, own, policy.policy_set.risk_levels)]
    return lines


def _section_text(
    section: CompiledSection, rules: Sequence[Rule], risk_levels: Sequence[str]
) -> list[str]:
    axes, delta = section.rules.axes, common_delta(rule.budget for rule in rules)

    def build(row_axes: int, join_units: bool) -> list[str]:
        columns = setting_columns(axes, row_axes)
        lines = group_rules(
            rules, lambda rule: rule, lambda rule: rule.budget, row_axes, join_units=join_units
        )
        rows = [
            table_row(line, columns, lambda cell: short_budget(cell[0].budget, delta), _PRUNED)
            for line in sort_lines(lines, risk_levels)
        ]
        note = any(_PRUNED in row.cells.values() for row in rows)
        table = format_table(blank_repeated_names(rows), columns)
        return [*table, *([f"{_PRUNED} is implied by another rule"] if note else [])]

    title = section_title(each_release=section.rules.each_release)
    return [f"{title}{delta_heading(delta)}", *fit_table(len(axes), build)]
