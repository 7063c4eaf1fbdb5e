"""Text of used budgets: one line per rule, or the most used rule of each line of rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil, inf

from dpolicy.cli.output.decision_text import format_loss, location_text
from dpolicy.cli.output.rule_table import (
    LEFT_HEADINGS,
    TableRow,
    common_delta,
    delta_heading,
    fit_table,
    format_table,
    short_budget,
    table_row,
)
from dpolicy.pdp.rule_status import RuleStatus, delta_share, loss_share, rank_by_use, used_share
from dpolicy.privacy.budget import budget_to_json, format_budget
from dpolicy.privacy.number_text import format_share
from dpolicy.releases.decision import stated_delta
from dpolicy.releases.texts.stated_delta import spent_delta_text
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.groups.rule_lines import RuleLine, Settings, group_rules, setting_columns

#: Share of a budget above which the table counts a rule as nearly used up.
NEARLY_USED = Fraction(9, 10)

_WIDTH = 20

#: Bars of one character, from empty to full.
_BLOCKS = " ▁▂▃▄▅▆▇█"

_HEADINGS = ("rules", "≥ 90 %", "exceeded")


def flat_statuses_text(statuses: Sequence[RuleStatus]) -> list[str]:
    """Return the lines of each rule, in the given order."""
    width = max((len(status.rule.name) for status in statuses), default=0)
    return [_status_text(status, width) for status in statuses]


def grouped_statuses_text(policy: CompiledPolicy, statuses: Sequence[RuleStatus]) -> list[str]:
    """Return exceeded rules singly, then one line per policy, risk, unit and distinct budgets.

    A cell has the largest used share of its rules. Lines are sorted by use.
    """
    exceeded = [status for status in statuses if not status.holds]
    lines = []
    if exceeded:
        count = "1 rule is" if len(exceeded) == 1 else f"{len(exceeded)} rules are"
        lines = [f"{count} exceeded", *flat_statuses_text(exceeded), ""]
    axes = policy.cumulative.rules.axes
    delta = common_delta(status.rule.budget for status in statuses)

    def build(row_axes: int, _: bool) -> list[str]:
        columns = setting_columns(axes, row_axes)
        grouped = group_rules(
            statuses,
            lambda status: status.rule,
            lambda status: status.rule.budget,
            row_axes,
            join_units=False,
        )
        rows = [
            _line_row(line, columns, delta)
            for line in sorted(grouped, key=lambda line: rank_by_use(_most_used(line.items)))
        ]
        return format_table(rows, columns, LEFT_HEADINGS, _HEADINGS)

    title = f"largest used share in each group of the {len(statuses)} rules, most used first"
    return [*lines, f"{title}{delta_heading(delta)}", *fit_table(len(axes), build)]


def _line_row(
    line: RuleLine[RuleStatus], columns: Sequence[Settings], common: Fraction | None
) -> TableRow:
    """Return the row of a line: counts of its rules, and the status of the most used one."""
    row = table_row(line, columns, lambda cell: _share_text(_most_used(cell)), "·")
    exceeded = sum(not status.holds for status in line.items)
    nearly = sum(_is_nearly_used(status) for status in line.items)
    counts = (str(len(line.items)), str(nearly or ""), str(exceeded or ""))
    worst = _most_used(line.items)
    note = (
        f"most used: {worst.rule.name}  {_used_text(worst, common)}" if rank_by_use(worst) else ""
    )
    return replace(row, right=counts, note=note, names=())


def _most_used(statuses: Sequence[RuleStatus]) -> RuleStatus:
    return min(statuses, key=rank_by_use)


def _is_nearly_used(status: RuleStatus) -> bool:
    share = used_share(status)
    return status.holds and share is not None and share >= NEARLY_USED


def _share_text(status: RuleStatus) -> str:
    """Return the used share with a bar of one character."""
    share = used_share(status)
    if share is None:
        return format_share(None if status.holds else inf)
    filled = 8 if share >= 1 else min(ceil(share * 8), 7)
    return f"{_BLOCKS[filled]} {format_share(share)}"


def _used_text(status: RuleStatus, common: Fraction | None) -> str:
    """Return the spent part of the binding quantity, and where it is spent."""
    budget, delta = budget_to_json(status.rule.budget), stated_delta(status.spent)
    text = f"{format_loss(status.spent, budget)} of {short_budget(status.rule.budget, common)}"
    if status.binding == "delta":
        text = spent_delta_text(delta, status.delta_limit, budget) or text
    return f"{text}{location_text(status.location)}"


def _status_text(status: RuleStatus, width: int) -> str:
    """Format the use of a budget, and in a second line the use of its δ if a δ is stated."""
    rule, exceeded = status.rule, "" if status.holds else "  exceeded"
    loss_mark = exceeded if status.binding != "delta" else ""
    spent = format_loss(status.spent, budget_to_json(rule.budget))
    line = (
        f"{_bar(loss_share(status), bool(loss_mark))}  {rule.name:<{width}}  {rule.unit}  "
        f"{spent} of {format_budget(rule.budget)}{location_text(status.location)}"
        f"{loss_mark}{_witness_text(status)}"
    )
    delta = stated_delta(status.spent)
    text = spent_delta_text(delta, status.delta_limit, budget_to_json(rule.budget))
    if text is None:
        return line
    mark = exceeded if status.binding in ("delta", "both") else ""
    return f"{line}\n{_bar(delta_share(status), bool(mark))}  {text}{mark}"


def _witness_text(status: RuleStatus) -> str:
    witness = status.implied_by
    return "" if witness is None else f"  implied by {witness.name}"


def _bar(share: Fraction | None, is_exceeded: bool) -> str:
    """Draw a used share. It is ∞ if the budget is exceeded and the share is not a finite number."""
    if share is None and is_exceeded:
        return "█" * _WIDTH + f" {format_share(inf):>8}"
    filled = min(_WIDTH if share and share >= 1 else _WIDTH - 1, ceil((share or 0) * _WIDTH))
    return "█" * filled + "░" * (_WIDTH - filled) + f" {format_share(share):>8}"
