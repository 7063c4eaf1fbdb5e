"""Proposals of policies on a journal, and their approval: prepared without a lock, like `apply`."""

from __future__ import annotations

from collections.abc import Sequence

from dpolicy.ledger.events import PolicyProposed
from dpolicy.pdp import proposal_commands
from dpolicy.pdp.journal.folded_ledger import read_event
from dpolicy.pdp.journal.journal import Journal
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.policy_changes.preparation import write_prepared_policy
from dpolicy.pdp.policy_changes.prepared_policy import PreparedPolicy
from dpolicy.pdp.policy_changes.recorded_policy import compile_recorded_policy
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.proposal import Proposal
from dpolicy.policy.accounting.accounting_defaults import NEWEST_DEFAULTS
from dpolicy.releases.decision import Decision
from dpolicy.rules.compiler import CompiledPolicy


def write_policy_proposal(
    journal: Journal, policy: CompiledPolicy, accept: Sequence[str] | str, by: str, because: str
) -> Proposal:
    """Prepare a policy and propose it. Raise `PolicyConflicts` as `apply` does."""

    def propose(log: WriteTransaction, prepared: PreparedPolicy | None) -> Proposal:
        return proposal_commands.propose_policy(log, policy, accept, by, because, prepared)

    return write_prepared_policy(journal, policy, propose, _check_nothing, applies=False)


def write_approval(journal: Journal, number: int, by: str, because: str) -> Decision | int:
    """Approve a proposal and carry it out; a proposed policy is prepared before."""

    def approve(log: WriteTransaction, prepared: PreparedPolicy | None = None) -> Decision | int:
        return proposal_commands.approve_proposal(log, number, by, because, prepared)

    def check(state: LedgerState) -> None:
        proposal_commands.find_open_proposal(state, number, by)

    policy = _find_proposed_policy(journal, number)
    if policy is None:
        return journal.write(approve)
    return write_prepared_policy(journal, policy, approve, check)


def _find_proposed_policy(journal: Journal, number: int) -> CompiledPolicy | None:
    """Return the policy of a proposal; None for other proposals, and for older defaults."""
    with journal.read() as state:
        proposal = state.proposals.get(number)
    if proposal is None or proposal.kind != "policy" or not proposal.open:
        return None
    event = read_event(journal.store, number)
    if not isinstance(event, PolicyProposed) or event.defaults != NEWEST_DEFAULTS.number:
        return None
    return compile_recorded_policy(event)


def _check_nothing(_state: LedgerState) -> None:
    """Let every state pass: a policy may be proposed at any time."""
