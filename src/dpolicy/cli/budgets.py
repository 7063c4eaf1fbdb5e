"""`dpolicy budgets`: what was spent and is left, per rule and unit."""

from __future__ import annotations

import click

from dpolicy.cli.ledger_option import ledger_option, opened
from dpolicy.cli.output import format_option, print_json
from dpolicy.enforcement.governance import Balance, share_used
from dpolicy.privacy.budget import describe

_WIDTH = 20


@click.command()
@ledger_option
@click.option("--policy", help="Only rules of one base policy.")
@click.option("--rule", help="Only rules whose name holds this text.")
@format_option
def command(ledger: str, policy: str | None, rule: str | None, format_: str) -> int:
    """Print what each rule over all releases has spent of its budget, the fullest first."""
    with opened(ledger) as point:
        found = [
            balance
            for balance in point.budgets()
            if policy in (None, balance.rule.base.policy) and (rule or "") in balance.rule.name
        ]
    found.sort(key=lambda balance: -float(share_used(balance) or 0))
    if format_ == "json":
        print_json({"budgets": [balance.as_json() for balance in found]})
    else:
        wide = max((len(b.rule.name) for b in found), default=0)
        for balance in found:
            click.echo(_line(balance, wide))
    return 0


def _line(balance: Balance, wide: int) -> str:
    share = share_used(balance)
    filled = min(_WIDTH, round(float(share or 0) * _WIDTH))
    bar = "█" * filled + "░" * (_WIDTH - filled)
    percent = "    -" if share is None else f"{float(share) * 100:4.0f}%"
    value = next(iter(balance.spent.values()))
    spent = "∞" if value is None else f"{value:.4g}"
    mark = "" if balance.holds else "  exceeded"
    rule = balance.rule
    return (
        f"{bar} {percent}  {rule.name:<{wide}}  {rule.unit}  "
        f"{spent} of {describe(rule.budget)}{mark}"
    )
