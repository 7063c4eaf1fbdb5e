"""`dpolicy diff`: compare two policy sets, and check the new one against a ledger."""

from __future__ import annotations

import click

from dpolicy.cli.exit_codes import DENIED
from dpolicy.cli.ledger_option import open_decision_point
from dpolicy.cli.output.change_text import flat_changes_text, grouped_changes_text
from dpolicy.cli.output.conflict_text import print_conflicts
from dpolicy.cli.output.printing import format_option, print_json
from dpolicy.cli.output.rule_table import MAX_FLAT_LINES, flat_option
from dpolicy.pdp.policy_changes.conflicts import PolicyConflict, conflicts_to_json
from dpolicy.rules.compiler import CompiledPolicy, load_policy
from dpolicy.rules.policy_diff import RuleChange, diff_policies


@click.command()
@click.argument("old", type=click.Path())
@click.argument("new", type=click.Path())
@click.option("--ledger", help="Ledger to check for conflicts with the new policy.")
@flat_option
@format_option
def command(old: str, new: str, ledger: str | None, flat: bool, format_: str) -> int:
    """Print which rules the policy set NEW adds, removes, tightens or loosens against OLD."""
    before, after = load_policy(old), load_policy(new)
    changes = diff_policies(before, after)
    conflicts = _conflicts(ledger, after)
    if format_ == "json":
        print_json(
            {
                "changes": [change.as_json() for change in changes],
                **conflicts_to_json(conflicts),
            }
        )
    else:
        for line in _changes_text(before, after, changes, flat=flat):
            click.echo(line)
        if conflicts:
            print_conflicts(conflicts)
    return DENIED if conflicts else 0


def _changes_text(
    old: CompiledPolicy, new: CompiledPolicy, changes: list[RuleChange], *, flat: bool
) -> list[str]:
    if not changes:
        return ["no rule changes"]
    if flat or len(changes) <= MAX_FLAT_LINES:
        return flat_changes_text(changes)
    return grouped_changes_text(old, new, changes)


def _conflicts(ledger: str | None, policy: CompiledPolicy) -> list[PolicyConflict]:
    if ledger is None:
        return []
    with open_decision_point(ledger) as point:
        return point.conflicts(policy)
