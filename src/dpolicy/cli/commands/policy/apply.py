"""`dpolicy apply`: activate a policy set."""

from __future__ import annotations

import click

from dpolicy.cli.exit_codes import DENIED
from dpolicy.cli.ledger_option import author_option, ledger_option, open_decision_point
from dpolicy.cli.output.conflict_text import print_conflicts
from dpolicy.cli.output.printing import format_option, print_diagnostics, print_json, print_note
from dpolicy.errors import PolicyConflicts
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.policy_changes.conflicts import conflicts_to_json
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.rules.compiler import CompiledPolicy, load_policy


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

    Records nothing if the same text is already active, unless --because gives a reason. Fails if
    recorded releases already exceed one of its budgets, or used one of its names with another
    definition.
    """
    compiled = load_policy(policy)
    if format_ == "text":
        print_diagnostics(compiled.warnings)
    with open_decision_point(ledger, new=True) as point:
        since = None if accept or because else _find_active_record(point, compiled)
        if since is not None:
            _print_active(compiled, since, format_, is_new=False)
            return 0
        try:
            sequence = point.apply(compiled, accept, by, because)
        except PolicyConflicts as error:
            if format_ == "json":
                print_json({"applied": False, **conflicts_to_json(error.conflicts)})
            else:
                print_conflicts(error.conflicts)
            return DENIED
    _print_active(compiled, sequence, format_, is_new=True)
    return 0


def _find_active_record(point: DecisionPoint, policy: CompiledPolicy) -> int | None:
    """Return the record that activated this policy, if it is active and has no conflicts."""

    def read(state: LedgerState) -> int | None:
        active = state.policy
        same = active is not None and _activation(active) == _activation(policy)
        return state.policy_record if same else None

    record = point.read_entries(read)
    return None if record is None or point.conflicts(policy) else record


def _activation(policy: CompiledPolicy) -> tuple[object, ...]:
    """Return everything of a policy that its activation records."""
    texts = tuple((source.name, source.text) for source in policy.sources)
    return policy.digest, texts, policy.accounting.defaults.number


def _print_active(policy: CompiledPolicy, sequence: int, format_: str, *, is_new: bool) -> None:
    if format_ == "json":
        digest = {"policy": policy.digest, "already-active": not is_new}
        print_json({"applied": True, "sequence": sequence, **digest})
    else:
        already = "" if is_new else "already "
        print_note(f"{policy.digest} is {already}active since record {sequence}")
