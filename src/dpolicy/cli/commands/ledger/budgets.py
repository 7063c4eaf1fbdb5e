"""`dpolicy budgets`: print spent loss and budget of each rule."""

from __future__ import annotations

import click

from dpolicy.cli.ledger_option import ledger_option, open_decision_point
from dpolicy.cli.location_option import location_option, parse_location
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.cli.output.rule_table import MAX_FLAT_LINES, flat_option
from dpolicy.cli.output.status_text import flat_statuses_text, grouped_statuses_text
from dpolicy.pdp.rule_status import rank_by_use


@click.command()
@ledger_option
@click.option("--policy", help="Show only rules of this base policy.")
@click.option("--rule", help="Show only rules whose name contains this text.")
@click.option("--all", "pruned", is_flag=True, help="Also show rules that other rules imply.")
@location_option
@flat_option
@format_option
def command(
    ledger: str,
    policy: str | None,
    rule: str | None,
    pruned: bool,
    at: tuple[str, ...],
    flat: bool,
    format_: str,
) -> int:
    """Print spent loss and budget of each cumulative rule, most used first.

    For a rule that partitions or time split, the command reports its most used location, or the
    most used location within --at.
    """
    with open_decision_point(ledger) as point:
        active = point.policy
        statuses = [
            status
            for status in point.budgets(parse_location(at), pruned=pruned)
            if policy in (None, status.rule.base.policy) and (rule or "") in status.rule.name
        ]
    statuses.sort(key=rank_by_use)
    if format_ == "json":
        print_json({"budgets": [status.as_json() for status in statuses]})
    else:
        print_note("spent: all releases together, as the filter of each rule counts them")
        if flat or active is None or len(statuses) <= MAX_FLAT_LINES:
            lines = flat_statuses_text(statuses)
        else:
            lines = grouped_statuses_text(active, statuses)
        for line in lines:
            click.echo(line)
    return 0
