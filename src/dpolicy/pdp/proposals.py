"""What needs two persons: one proposes, another answers, and what is approved is done at once.

A proposal is an event: it outlives servers and is shared between them. It holds no budget; what is
approved is decided by the rules and balances of that moment, in the same commit as the answer.
Which acts need two persons is for the service to say (its access file), not for the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import InvariantBroken, OperationRejected
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import (
    Event,
    PolicyProposed,
    ProposalAnswered,
    ReleaseProposed,
    VoidProposed,
    release_body_in,
)
from dpolicy.pdp import commands
from dpolicy.pdp.journal import WriteTransaction
from dpolicy.pdp.ledger_state import Proposal, compile_recorded_policy
from dpolicy.pdp.request_evaluation import (
    no_policy_error,
    recorded_decision,
    rejected_release_error,
)
from dpolicy.releases.body import release_from_body
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy


def propose_release(
    log: WriteTransaction, release: Release, by: str, reserve: bool
) -> Decision | Proposal:
    """Let a release wait; the same id asked again waits on, or gets what was decided."""
    known = log.state.entries.get(release.id)
    if known is not None:
        return recorded_decision(log.event(known.request_record), known.status, release)
    waiting = log.state.newest_proposal("release", release.id)
    if waiting is not None:
        if encode_canonical(release_body_in(log.event(waiting.number))) != encode_canonical(
            release.body
        ):
            raise OperationRejected(
                f"the id `{release.id}` was used for another release", "id-taken"
            )
        if not waiting.open:
            raise rejected_release_error(release.id)
        return waiting
    if log.state.policy is None:
        raise no_policy_error()
    resolve_or_reject(release, log.state.policy)
    return _made(log, ReleaseProposed(log.timestamp, by, release.id, release.body, reserve))


def propose_void(log: WriteTransaction, release: str, because: str, by: str) -> Proposal:
    """Let the end of a reservation wait."""
    commands.ensure_voidable(log, release, because)
    waiting = log.state.newest_proposal("void", release)
    if waiting is not None and waiting.open:
        return waiting
    return _made(log, VoidProposed(log.timestamp, by, release, because))


def propose_policy(
    log: WriteTransaction, policy: CompiledPolicy, accept: Sequence[str], by: str, because: str
) -> Proposal:
    """Let a policy wait. Raises `Conflicting` as putting it in force would."""
    event = commands.policy_applied_event(log, policy, accept, by, because)
    waiting = log.state.newest_proposal("policy", policy.digest)
    if waiting is not None and waiting.open:
        return waiting
    sources, accepted = event.sources, event.accepted
    return _made(log, PolicyProposed(log.timestamp, by, because, policy.digest, sources, accepted))


def _made(log: WriteTransaction, event: Event) -> Proposal:
    return log.state.proposals[log.append(event)]


def approve_proposal(log: WriteTransaction, number: int, by: str, because: str) -> Decision | int:
    """Agree, and do what was proposed."""
    proposal = _open(log, number, by)
    event = log.event(number)
    answer = ProposalAnswered(log.timestamp, by, because, number, True)
    decision, effect = _carried_out(log, event, proposal.by)
    log.append(answer)
    done = log.append(effect)
    return done if decision is None else decision


def reject_proposal(log: WriteTransaction, number: int, by: str, because: str) -> int:
    """Do not agree; nothing of it happens."""
    _open(log, number, by)
    return log.append(ProposalAnswered(log.timestamp, by, because, number, False))


def _open(log: WriteTransaction, number: int, by: str) -> Proposal:
    """A proposal that this person may answer."""
    proposal = log.state.proposals.get(number)
    if proposal is None:
        raise OperationRejected(f"there is no proposal {number}", "not-found")
    if not proposal.open:
        word = "approved" if proposal.approved else "rejected"
        raise OperationRejected(f"proposal {number} was {word} before", "already-answered")
    if not by or by == proposal.by:
        raise OperationRejected(
            f"`{proposal.by}` proposed this: another must answer", "second-person"
        )
    return proposal


def _carried_out(log: WriteTransaction, event: Event, by: str) -> tuple[Decision | None, Event]:
    """What doing it comes to: a decision for a release, and the event that follows the answer."""
    match event:
        case ReleaseProposed():
            release = release_from_body(event.body)
            if release.id in log.state.entries:
                raise OperationRejected(
                    f"`{release.id}` was charged otherwise: reject this", "id-taken"
                )
            behind_answer = log.state.sequence + 2
            return commands.release_decided_event(
                log, release, by, reserve=event.reserve, at=behind_answer
            )
        case VoidProposed():
            return None, commands.release_voided_event(log, event.release, event.because, by)
        case PolicyProposed():
            policy = compile_recorded_policy(event)
            return None, commands.policy_applied_event(
                log, policy, event.accepted, by, event.because
            )
    raise InvariantBroken("only what was proposed can be answered")
