"""`dpolicy apply`: activate a policy set."""

from __future__ import annotations

import click

from dpolicy.cli.exit_codes import DENIED
from dpolicy.cli.ledger_option import author_option, ledger_option, open_decision_point
from dpolicy.cli.output.conflict_text import print_conflicts
from dpolicy.cli.output.printing import format_option, print_diagnostics, print_json, print_note
from dpolicy.errors import PolicyConflicts
from dpolicy.pdp.policy_changes.conflicts import conflicts_to_json
from dpolicy.rules.compiler import load_policy


@click.command()
@click.argument("policy", type=click.Path())
@ledger_option
@author_option
@click.option(
    "--accept",
    multiple=True,
    metavar="RULE",
    help="Name of a conflict that is accepted: a rule, or such as `unit user-day`; repeatable.",
)
@click.option("--because", default="", help="Reason, stored in the ledger.")
@format_option
def command(
    policy: str, ledger: str, by: str, accept: tuple[str, ...], because: str, format_: str
) -> int:
    """Activate the policy set POLICY.

    Fails if recorded releases already exceed one of its budgets, or used one of its names with
    another definition.
    """
    compiled = load_policy(policy)
    if format_ == "text":
        print_diagnostics(compiled.warnings)
    with open_decision_point(ledger, new=True) as point:
        try:
            sequence = point.apply(compiled, accept, by, because)
        except PolicyConflicts as error:
            if format_ == "json":
                print_json({"applied": False, **conflicts_to_json(error.conflicts)})
            else:
                print_conflicts(error.conflicts)
            return DENIED
    if format_ == "json":
        print_json({"applied": True, "sequence": sequence, "policy": compiled.digest})
    else:
        print_note(f"{compiled.digest} is active since record {sequence}")
    return 0
