"""`dpolicy budgets`: what was spent and is left, per rule and unit."""

from __future__ import annotations

import click

from dpolicy.cli.ledger_option import ledger_option, open_decision_point
from dpolicy.cli.output.decision_text import location_text
from dpolicy.cli.output.printing import format_option, print_json
from dpolicy.pdp.rule_status import RuleStatus, used_share
from dpolicy.privacy.budget import format_budget

_WIDTH = 20


@click.command()
@ledger_option
@click.option("--policy", help="Only rules of one base policy.")
@click.option("--rule", help="Only rules whose name holds this text.")
@click.option(
    "--at", multiple=True, help="Only this place: country=CH, time=2026-10; may be repeated."
)
@format_option
def command(
    ledger: str, policy: str | None, rule: str | None, at: tuple[str, ...], format_: str
) -> int:
    """Print what each rule over all releases has spent of its budget, the fullest first.

    A rule that is split by place is told at its worst place, or at the worst of those named.
    """
    with open_decision_point(ledger) as point:
        found = [
            balance
            for balance in point.budgets(_place(at))
            if policy in (None, balance.rule.base.policy) and (rule or "") in balance.rule.name
        ]
    found.sort(key=lambda balance: -float(used_share(balance) or 0))
    if format_ == "json":
        print_json({"budgets": [balance.as_json() for balance in found]})
    else:
        wide = max((len(b.rule.name) for b in found), default=0)
        for balance in found:
            click.echo(_line(balance, wide))
    return 0


def _place(at: tuple[str, ...]) -> dict[str, str]:
    told = [one.partition("=") for one in at]
    wrong = [name for name, sign, value in told if not (name and sign and value)]
    if wrong:
        raise click.UsageError(f"`--at {wrong[0]}` must name a place, such as country=CH")
    return {name: value for name, _, value in told}


def _line(balance: RuleStatus, wide: int) -> str:
    share = used_share(balance)
    filled = min(_WIDTH, round(float(share or 0) * _WIDTH))
    bar = "█" * filled + "░" * (_WIDTH - filled)
    percent = "    -" if share is None else f"{float(share) * 100:4.0f}%"
    value = next(iter(balance.spent.values()))
    spent = "∞" if value is None else f"{value:.4g}"
    mark = "" if balance.holds else "  exceeded"
    rule = balance.rule
    return (
        f"{bar} {percent}  {rule.name:<{wide}}  {rule.unit}  "
        f"{spent} of {format_budget(rule.budget)}{location_text(balance.location)}{mark}"
    )
