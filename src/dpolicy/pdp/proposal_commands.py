"""Proposals: commands that need a second approver.

One person proposes and another answers; an approved proposal is executed immediately, in the same
commit as the answer. A proposal is an event, so it outlives servers and is shared between them. It
reserves no budget: the decision point decides it when it is approved. The access file of the
service determines which commands need a proposal, not the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import InvariantBroken, OperationRejected
from dpolicy.ledger.events import (
    Event,
    PolicyProposed,
    ProposalAnswered,
    RelabellingProposed,
    ReleaseProposed,
    VoidProposed,
)
from dpolicy.pdp import commands, relabelling
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.policy_changes.prepared_policy import PreparedPolicy
from dpolicy.pdp.policy_changes.recorded_policy import compile_recorded_policy
from dpolicy.pdp.request_evaluation import (
    active_policy,
    decide_mechanisms,
    explain_verdict,
    id_taken_error,
    is_same_request,
    rejected_release_error,
)
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.proposal import Proposal
from dpolicy.releases.body import release_from_body
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy


def propose_release(
    log: WriteTransaction, release: Release, by: str, reserve: bool
) -> Decision | Proposal:
    """Propose a release. For a repeated id, return its open proposal or recorded decision."""
    recorded = commands.find_recorded_decision(log, release)
    if recorded is not None:
        return recorded
    earlier = log.state.proposals.newest("release", release.id)
    if earlier is not None:
        if not is_same_request(log.event(earlier.number), release):
            raise id_taken_error(log.state, release.id)
        if not earlier.open:
            raise rejected_release_error(release.id)
        return earlier
    resolve_or_reject(release, active_policy(log.state))
    meaning = commands.meaning_text(log.state, release)
    event = ReleaseProposed(log.timestamp, by, release.id, release.body, reserve, meaning)
    return _append_proposal(log, event)


def propose_void(log: WriteTransaction, release: str, because: str, by: str) -> Proposal:
    """Propose to end a reservation as unused; return an open proposal for it if there is one."""
    commands.ensure_voidable(log, release, because)
    earlier = log.state.proposals.newest("void", release)
    if earlier is not None and earlier.open:
        return earlier
    return _append_proposal(log, VoidProposed(log.timestamp, by, release, because))


def propose_relabelling(log: WriteTransaction, release: Release, because: str, by: str) -> Proposal:
    """Propose to correct a recorded release; return an open proposal for the same correction."""
    relabelling.ensure_relabellable(log, release, because)
    earlier = log.state.proposals.newest("relabelling", release.id)
    if earlier is not None and earlier.open:
        if is_same_request(log.event(earlier.number), release):
            return earlier
        raise OperationRejected(
            f"release `{release.id}` has another open correction, proposal {earlier.number}",
            "pending",
        )
    meaning = commands.meaning_text(log.state, release)
    event = RelabellingProposed(log.timestamp, by, because, release.id, release.body, meaning)
    return _append_proposal(log, event)


def propose_policy(
    log: WriteTransaction,
    policy: CompiledPolicy,
    accept: Sequence[str] | str,
    by: str,
    because: str,
    prepared: PreparedPolicy | None = None,
) -> Proposal:
    """Propose a policy. Raise `PolicyConflicts` and `PreparationOutdated` as `apply_policy`."""
    event = commands.policy_applied_event(log, policy, accept, by, because, prepared=prepared)
    earlier = log.state.proposals.newest("policy", policy.digest)
    if earlier is not None and earlier.open:
        return earlier
    proposed = PolicyProposed(
        log.timestamp, by, because, policy.digest, event.sources, event.accepted, event.defaults
    )
    return _append_proposal(log, proposed)


def _append_proposal(log: WriteTransaction, event: Event) -> Proposal:
    return log.state.proposals[log.append(event)]


def approve_proposal(
    log: WriteTransaction,
    number: int,
    by: str,
    because: str,
    prepared: PreparedPolicy | None = None,
) -> Decision | int:
    """Approve a proposal and carry it out.

    Return the decision of a release, or the record number of any other event. `prepared` is the
    proposed policy; see `apply_policy`.
    """
    proposal = find_open_proposal(log.state, number, by)
    answer = ProposalAnswered(log.timestamp, by, because, number, True)
    match log.event(number):
        case ReleaseProposed() as proposed:
            return _approve_release(log, proposed, proposal.by, answer)
        case VoidProposed() as proposed:
            effect: Event = commands.release_voided_event(
                log, proposed.release, proposed.because, proposal.by
            )
        case RelabellingProposed() as proposed:
            corrected = release_from_body(proposed.body)
            commands.ensure_same_meaning(log.state, corrected, proposed.meaning)
            effect = relabelling.relabelled_event(log, corrected, proposed.because, proposal.by)
        case PolicyProposed() as proposed:
            policy = prepared.policy if prepared else compile_recorded_policy(proposed)
            applied = commands.policy_applied_event(
                log,
                policy,
                proposed.accepted,
                proposal.by,
                proposed.because,
                is_approved=True,
                prepared=prepared,
            )
            effect = replace(applied, defaults=proposed.defaults)
            log.state.offer_totals(prepared.offered if prepared else None)
        case _:
            raise InvariantBroken(f"record {number} is not a proposal")
    log.append(answer)
    return log.append(effect)


def _approve_release(
    log: WriteTransaction, proposed: ReleaseProposed, by: str, answer: ProposalAnswered
) -> Decision:
    """Decide a proposed release; append the answer, then the decision."""
    release = release_from_body(proposed.body)
    if release.id in log.state.entries:
        raise OperationRejected(
            f"release `{release.id}` is already recorded; reject this proposal", "id-taken"
        )
    mechanisms = resolve_or_reject(release, active_policy(log.state))
    commands.ensure_same_meaning(log.state, release, proposed.meaning)
    log.state.update_balances()
    verdict = decide_mechanisms(log.state, mechanisms)
    decision = explain_verdict(log.state, release, verdict).at_record(log.state.sequence + 2)
    meaning = commands.meaning_text(log.state, release)
    event = commands.release_decided_event(
        log, release, decision, by, meaning, reserve=proposed.reserve
    )
    log.append(answer)
    log.append(event, resolution=mechanisms)
    return decision


def reject_proposal(log: WriteTransaction, number: int, by: str, because: str) -> int:
    """Reject a proposal; return the record number of the answer."""
    find_open_proposal(log.state, number, by)
    return log.append(ProposalAnswered(log.timestamp, by, because, number, False))


def find_open_proposal(state: LedgerState, number: int, by: str) -> Proposal:
    """Return an open proposal that `by` may answer. Raise `OperationRejected`."""
    proposal = state.proposals.get(number)
    if proposal is None:
        raise OperationRejected(f"there is no proposal {number}", "not-found")
    if not proposal.open:
        answer = "approved" if proposal.approved else "rejected"
        raise OperationRejected(f"proposal {number} is already {answer}", "already-answered")
    if not by or by == proposal.by:
        raise OperationRejected(
            f"`{proposal.by}` made proposal {number}; another person must answer it",
            "second-person",
        )
    return proposal
