"""Conflicts → text: the rule, who is at fault, and the smallest budget that would do."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dpolicy.cli.output.decision_text import location_text
from dpolicy.pdp.conflicts import smallest_sufficient_budget
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.privacy.budget import format_budget


def print_conflicts(conflicts: Sequence[RuleStatus]) -> None:
    """Conflicts for people."""
    for conflict in conflicts:
        least = ", ".join(
            f"{key} {'∞' if value is None else f'{value:.6g}'}"
            for key, value in smallest_sufficient_budget(conflict).items()
        )
        rule = conflict.rule
        limit = f"budget {format_budget(rule.budget)}{location_text(conflict.location)}"
        click.echo(f"conflict  {rule.name}  unit {rule.unit}  {limit}")
        click.echo(f"  the past needs at least {least}  {rule.base.span}")
        click.echo(f"  spent most by {', '.join(conflict.spenders)}")
    count = "1 rule is" if len(conflicts) == 1 else f"{len(conflicts)} rules are"
    click.echo(f"{count} exceeded by the past; name each with --accept, or raise its budget")
