"""Preparation of policy changes on a journal: nothing expensive runs under a lock."""

from __future__ import annotations

from collections.abc import Callable

from dpolicy.pdp.journal.journal import Journal, Result
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.policy_changes.conflicts import PolicyConflict, find_all_conflicts
from dpolicy.pdp.policy_changes.prepared_policy import (
    PreparationOutdated,
    PreparedPolicy,
    copy_releases,
    prepare_policy,
)
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.rules.compiler import CompiledPolicy

#: How often a policy is prepared before a command computes its conflicts under the write lock.
MAX_PREPARATIONS = 3

#: A command that records a policy, with what was prepared for it.
PolicyCommand = Callable[[WriteTransaction, PreparedPolicy | None], Result]


def find_conflicts(journal: Journal, policy: CompiledPolicy) -> list[PolicyConflict]:
    """Return the conflicts of a candidate policy with the durable releases."""
    with journal.read() as state:
        copy = copy_releases(state)
    prepared = prepare_policy(copy, policy)
    return prepared.conflicts if prepared else find_all_conflicts(copy, policy)


def write_prepared_policy(
    journal: Journal,
    policy: CompiledPolicy,
    command: PolicyCommand[Result],
    check: Callable[[LedgerState], None],
    *,
    applies: bool = True,
) -> Result:
    """Prepare a policy and run a command that records it, and that applies it or only proposes it.

    `check` raises if the command would be refused anyway. If the conflicts change in between,
    prepare the policy again; after `MAX_PREPARATIONS`, the command computes all under the lock.
    """
    write = _write_offered_totals if applies else _write
    for _ in range(MAX_PREPARATIONS):
        with journal.read() as state:
            check(state)
            copy = None if state.has_pending_groups else copy_releases(state)
        prepared = None if copy is None else prepare_policy(copy, policy)
        if prepared is None:
            break
        try:
            return write(journal, prepared, command)
        except PreparationOutdated:
            continue
    return _write(journal, None, command)


def _write(
    journal: Journal, prepared: PreparedPolicy | None, command: PolicyCommand[Result]
) -> Result:
    return journal.write(lambda log: command(log, prepared))


def _write_offered_totals(
    journal: Journal, prepared: PreparedPolicy, command: PolicyCommand[Result]
) -> Result:
    """Run a command, and let readers take over the totals when they fold its record."""
    with journal.read() as state:
        state.offer_totals(prepared.copy_offered_totals())
    try:
        return _write(journal, prepared, command)
    except BaseException:
        with journal.read() as state:
            state.offer_totals(None)
        raise
