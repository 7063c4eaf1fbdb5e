"""Text of policy conflicts: the rule, its largest spenders, and the smallest sufficient budget."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dpolicy.cli.output.decision_text import location_text
from dpolicy.pdp.conflicts import smallest_sufficient_budget
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.privacy.budget import budget_to_json, format_budget
from dpolicy.releases.decision import stated_delta
from dpolicy.releases.stated_delta import spent_delta_text


def print_conflicts(conflicts: Sequence[RuleStatus]) -> None:
    """Print conflicts, then how to resolve them."""
    for conflict in conflicts:
        smallest = ", ".join(
            f"{key} {'∞' if value is None else f'{value:.15g}'}"
            for key, value in smallest_sufficient_budget(conflict).items()
        )
        rule = conflict.rule
        budget = f"budget {format_budget(rule.budget)}{location_text(conflict.location)}"
        click.echo(f"conflict  {rule.name}  unit {rule.unit}  {budget}")
        if conflict.binding in ("delta", "both"):
            delta, stated = stated_delta(conflict.spent), budget_to_json(rule.budget)
            click.echo(f"  {spent_delta_text(delta, conflict.delta_limit, stated)}")
        click.echo(f"  recorded releases need a budget of at least {smallest}  {rule.base.span}")
        click.echo(f"  largest spenders: {', '.join(conflict.spenders)}")
    count = "1 rule is" if len(conflicts) == 1 else f"{len(conflicts)} rules are"
    remedy = "accept each with --accept, or raise its budget"
    click.echo(f"{count} already exceeded by recorded releases; {remedy}")
