"""What needs two persons: one proposes, another answers, and what is approved is done at once.

A proposal is an event: it outlives servers and is shared between them. It holds no budget; what is
approved is decided by the rules and balances of that moment, in the same commit as the answer.
Which acts need two persons is for the service to say (its access file), not for the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpolicy.enforcement import acts
from dpolicy.enforcement.journal import Writing
from dpolicy.enforcement.judgement import no_policy, readable, rejected, replayed
from dpolicy.enforcement.state import Proposal, compiled_of
from dpolicy.errors import InvariantBroken, Misused
from dpolicy.ledger.canonical import encode
from dpolicy.ledger.events import (
    Event,
    PolicyProposed,
    ProposalAnswered,
    ReleaseProposed,
    VoidProposed,
    body_of,
)
from dpolicy.releases.body import release_of
from dpolicy.releases.decision import Decision
from dpolicy.releases.request import Release
from dpolicy.rules.compiler import CompiledPolicy


def propose(log: Writing, release: Release, by: str, reserve: bool) -> Decision | Proposal:
    """Let a release wait; the same id asked again waits on, or gets what was decided."""
    known = log.state.entries.get(release.id)
    if known is not None:
        return replayed(log.event(known.asked), known.status, release)
    waiting = log.state.proposal_of("release", release.id)
    if waiting is not None:
        if encode(body_of(log.event(waiting.number))) != encode(release.body):
            raise Misused(f"the id `{release.id}` was used for another release", "id-taken")
        if not waiting.open:
            raise rejected(release.id)
        return waiting
    if log.state.policy is None:
        raise no_policy()
    readable(release, log.state.policy)
    return _made(log, ReleaseProposed(log.at, by, release.id, release.body, reserve))


def propose_void(log: Writing, release: str, because: str, by: str) -> Proposal:
    """Let the end of a reservation wait."""
    acts.check_void(log, release, because)
    waiting = log.state.proposal_of("void", release)
    if waiting is not None and waiting.open:
        return waiting
    return _made(log, VoidProposed(log.at, by, release, because))


def propose_policy(
    log: Writing, policy: CompiledPolicy, accept: Sequence[str], by: str, because: str
) -> Proposal:
    """Let a policy wait. Raises `Conflicting` as putting it in force would."""
    event = acts.applied(log, policy, accept, by, because)
    waiting = log.state.proposal_of("policy", policy.digest)
    if waiting is not None and waiting.open:
        return waiting
    sources, accepted = event.sources, event.accepted
    return _made(log, PolicyProposed(log.at, by, because, policy.digest, sources, accepted))


def _made(log: Writing, event: Event) -> Proposal:
    return log.state.proposals[log.emit(event)]


def approve(log: Writing, number: int, by: str, because: str) -> Decision | int:
    """Agree, and do what was proposed."""
    proposal = _open(log, number, by)
    event = log.event(number)
    answer = ProposalAnswered(log.at, by, because, number, True)
    decision, effect = _carried_out(log, event, proposal.by)
    log.emit(answer)
    done = log.emit(effect)
    return done if decision is None else decision


def reject(log: Writing, number: int, by: str, because: str) -> int:
    """Do not agree; nothing of it happens."""
    _open(log, number, by)
    return log.emit(ProposalAnswered(log.at, by, because, number, False))


def _open(log: Writing, number: int, by: str) -> Proposal:
    """A proposal that this person may answer."""
    proposal = log.state.proposals.get(number)
    if proposal is None:
        raise Misused(f"there is no proposal {number}", "not-found")
    if not proposal.open:
        word = "approved" if proposal.approved else "rejected"
        raise Misused(f"proposal {number} was {word} before", "already-answered")
    if not by or by == proposal.by:
        raise Misused(f"`{proposal.by}` proposed this: another must answer", "second-person")
    return proposal


def _carried_out(log: Writing, event: Event, by: str) -> tuple[Decision | None, Event]:
    """What doing it comes to: a decision for a release, and the event that follows the answer."""
    match event:
        case ReleaseProposed():
            release = release_of(event.body)
            if release.id in log.state.entries:
                raise Misused(f"`{release.id}` was charged otherwise: reject this", "id-taken")
            behind_answer = log.state.sequence + 2
            return acts.decided(log, release, by, reserve=event.reserve, at=behind_answer)
        case VoidProposed():
            return None, acts.voided(log, event.release, event.because, by)
        case PolicyProposed():
            policy = compiled_of(event)
            return None, acts.applied(log, policy, event.accepted, by, event.because)
    raise InvariantBroken("only what was proposed can be answered")
