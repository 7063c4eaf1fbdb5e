"""`dpolicy budgets`: print spent loss and budget of each rule."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf

import click

from dpolicy.cli.ledger_option import ledger_option, open_decision_point
from dpolicy.cli.location_option import location_option, parse_location
from dpolicy.cli.output.decision_text import format_loss, location_text
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.pdp.rule_status import RuleStatus, delta_share, loss_share, rank_by_use
from dpolicy.privacy.budget import budget_to_json, format_budget
from dpolicy.privacy.number_text import format_share
from dpolicy.releases.decision import stated_delta
from dpolicy.releases.texts.stated_delta import spent_delta_text

_WIDTH = 20


@click.command()
@ledger_option
@click.option("--policy", help="Show only rules of this base policy.")
@click.option("--rule", help="Show only rules whose name contains this text.")
@click.option("--all", "pruned", is_flag=True, help="Also show rules that other rules imply.")
@location_option
@format_option
def command(
    ledger: str,
    policy: str | None,
    rule: str | None,
    pruned: bool,
    at: tuple[str, ...],
    format_: str,
) -> int:
    """Print spent loss and budget of each cumulative rule, most used first.

    For a rule that partitions or time split, the command reports its most used location, or the
    most used location within --at.
    """
    with open_decision_point(ledger) as point:
        statuses = [
            status
            for status in point.budgets(parse_location(at), pruned=pruned)
            if policy in (None, status.rule.base.policy) and (rule or "") in status.rule.name
        ]
    statuses.sort(key=rank_by_use)
    if format_ == "json":
        print_json({"budgets": [status.as_json() for status in statuses]})
    else:
        width = max((len(status.rule.name) for status in statuses), default=0)
        print_note("spent: all releases together, as the filter of each rule counts them")
        for status in statuses:
            click.echo(_status_text(status, width))
    return 0


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
