"""Text of policy conflicts: redefined names, and exceeded rules with their largest spenders."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dpolicy.cli.output.decision_text import location_text
from dpolicy.pdp.policy_changes.sufficient_budget import is_smallest, smallest_sufficient_budget
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.privacy.budget import budget_to_json, format_budget
from dpolicy.privacy.number_text import ALL_DIGITS, format_up
from dpolicy.releases.decision import stated_delta
from dpolicy.releases.redefinition import Redefinition
from dpolicy.releases.texts.stated_delta import spent_delta_text


def print_conflicts(conflicts: Sequence[object]) -> None:
    """Print redefined names and exceeded rules, then how to resolve them."""
    for conflict in conflicts:
        if isinstance(conflict, Redefinition):
            _print_redefinition(conflict)
    exceeded = [conflict for conflict in conflicts if isinstance(conflict, RuleStatus)]
    if exceeded:
        _print_exceeded_rules(exceeded)


def _print_redefinition(redefinition: Redefinition) -> None:
    more = redefinition.count - len(redefinition.releases)
    others = f" and {more} more" if more else ""
    click.echo(f"conflict  {redefinition.message}")
    click.echo(f"  releases: {', '.join(redefinition.releases)}{others}")
    click.echo(f"  help: {redefinition.help} (--accept '{redefinition.name}')")


def _print_exceeded_rules(conflicts: Sequence[RuleStatus]) -> None:
    for conflict in conflicts:
        smallest = ", ".join(
            f"{key} {'∞' if value is None else format_up(value, ALL_DIGITS)}"
            for key, value in smallest_sufficient_budget(conflict).items()
        )
        rule = conflict.rule
        budget = f"budget {format_budget(rule.budget)}{location_text(conflict.location)}"
        click.echo(f"conflict  {rule.name}  unit {rule.unit}  {budget}")
        if conflict.binding in ("delta", "both"):
            delta, stated = stated_delta(conflict.spent), budget_to_json(rule.budget)
            text = spent_delta_text(delta, conflict.delta_limit, stated, "exceeds")
            click.echo(f"  {text}")
        need = f"recorded releases need a budget of at least {smallest}"
        if not is_smallest(conflict):
            need = f"a budget of {smallest} is enough for recorded releases; less may be"
        click.echo(f"  {need}  {rule.base.span}")
        click.echo(f"  largest spenders: {', '.join(conflict.spenders)}")
    count = "1 rule is" if len(conflicts) == 1 else f"{len(conflicts)} rules are"
    remedy = "accept each with --accept, or raise its budget"
    click.echo(f"{count} already exceeded by recorded releases; {remedy}")
