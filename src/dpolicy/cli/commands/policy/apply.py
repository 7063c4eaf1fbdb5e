"""`dpolicy apply`: makes a policy set the ledger's policy."""

from __future__ import annotations

import click

from dpolicy.cli.exit_codes import DENIED
from dpolicy.cli.ledger_option import author_option, ledger_option, open_decision_point
from dpolicy.cli.output.conflict_text import print_conflicts
from dpolicy.cli.output.printing import format_option, print_diagnostics, print_json, print_note
from dpolicy.errors import PolicyConflicts
from dpolicy.pdp.conflicts import conflict_to_json
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.rules.compiler import load_policy


@click.command()
@click.argument("policy", type=click.Path())
@ledger_option
@author_option
@click.option("--accept", multiple=True, metavar="RULE", help="Accept a conflict of this rule.")
@click.option("--because", default="", help="Why, for the record.")
@format_option
def command(
    policy: str, ledger: str, by: str, accept: tuple[str, ...], because: str, format_: str
) -> int:
    """Put the policy set POLICY in force, unless the past has already broken one of its rules."""
    compiled = load_policy(policy)
    if format_ == "text":
        print_diagnostics(compiled.warnings)
    with open_decision_point(ledger, new=True) as point:
        try:
            sequence = point.apply(compiled, accept, by, because)
        except PolicyConflicts as error:
            found = [c for c in error.conflicts if isinstance(c, RuleStatus)]
            if format_ == "json":
                print_json({"applied": False, "conflicts": [conflict_to_json(c) for c in found]})
            else:
                print_conflicts(found)
            return DENIED
    if format_ == "json":
        print_json({"applied": True, "sequence": sequence, "policy": compiled.digest})
    else:
        print_note(f"{compiled.digest} is in force from record {sequence} on")
    return 0
