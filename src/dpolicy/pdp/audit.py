"""A ledger → whether it is what was written: chain, fold and every decision, from the first event.

Each recorded decision is made again from the state before it, and all else is held against what the
decision point asks of it. An answer that comes out otherwise, a record that does not follow the one
before it, or one that is no event, is told with its number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import (
    DPolicyError,
    InvalidValue,
    LedgerUnavailable,
    OperationRejected,
    ReleaseRejected,
)
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.chain import Record, check_chain
from dpolicy.ledger.events import (
    Event,
    PolicyApplied,
    PolicyProposed,
    ProposalAnswered,
    ReleaseCommitted,
    ReleaseDecided,
    ReleaseExpired,
    ReleaseImported,
    ReleaseProposed,
    ReleaseRelabelled,
    ReleaseVoided,
    VoidProposed,
    from_bytes,
    release_body_in,
)
from dpolicy.ledger.store import LedgerStore
from dpolicy.pdp.conflicts import find_conflicts
from dpolicy.pdp.journal import read_event
from dpolicy.pdp.ledger_state import (
    RESERVED,
    LedgerState,
    compile_recorded_policy,
    first_day_of_month,
)
from dpolicy.pdp.request_evaluation import (
    ensure_not_pending,
    ensure_within_reservation,
    evaluate_release,
    find_reservation,
)
from dpolicy.releases.body import Body, loss_relevant_fields, release_from_body
from dpolicy.releases.decision import Decision, Reason
from dpolicy.rules.compiler import CompiledPolicy


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """Something that is not as it should be, at a record."""

    sequence: int
    problem: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """How far the ledger could be read, and what was found."""

    records: int
    head: str
    findings: tuple[AuditFinding, ...]


def audit_ledger(store: LedgerStore) -> AuditReport:
    """Read a ledger from its first record and make every decision again.

    Raises `LedgerUnavailable` if it cannot be read: that says nothing about what is in it.
    """
    state = LedgerState()
    findings: list[AuditFinding] = []
    due: Event | None = None
    try:
        for record in store.records_after(0):
            check_chain(state.head, record)
            event = from_bytes(record.payload)
            state.now = first_day_of_month(event.at)
            wrong = chain(_wrong(state, event, store), _not_done(due, event))
            findings += [AuditFinding(record.sequence, problem) for problem in wrong]
            state.fold([record])
            due = _approved(event, store)
        findings += [AuditFinding(state.sequence, problem) for problem in _not_done(due, None)]
    except LedgerUnavailable:
        raise
    except DPolicyError as error:
        findings.append(AuditFinding(state.sequence + 1, str(error)))
    head = state.head.digest.hex() if state.head else ""
    return AuditReport(state.sequence, head, tuple(findings))


def records_with_events(store: LedgerStore) -> Iterator[tuple[Record, Event]]:
    """Every record with its event, in order."""
    for record in store.records_after(0):
        yield record, from_bytes(record.payload)


def _wrong(state: LedgerState, event: Event, store: LedgerStore) -> Iterator[str]:
    """What the decision point would not have written in this state."""
    match event:
        case PolicyApplied():
            yield from _wrong_policy(state, event)
        case ReleaseDecided():
            yield from _wrong_name(event.release, event.body)
            yield from _refused(lambda: ensure_not_pending(state, event.release))
            yield from _wrong_decision(state, event)
        case ReleaseImported():
            yield from _wrong_name(event.release, event.body)
            yield from _refused(lambda: ensure_not_pending(state, event.release))
            yield from _unreadable(state, event.body)
        case ReleaseRelabelled():
            yield from _wrong_name(event.release, event.body)
            yield from _unreadable(state, event.body)
            yield from _unsaid(event.release, event.because)
            charged = release_body_in(read_event(store, state.entry(event.release).charge_record))
            if encode_canonical(loss_relevant_fields(charged)) != encode_canonical(
                loss_relevant_fields(event.body)
            ):
                yield f"`{event.release}` is described anew with other mechanisms"
        case ReleaseCommitted() | ReleaseVoided() | ReleaseExpired():
            yield from _wrong_end(state, event)
        case ReleaseProposed() | VoidProposed() | PolicyProposed():
            yield from _wrong_proposal(state, event)
        case ProposalAnswered():
            yield from _wrong_answer(state, event)


def _wrong_proposal(
    state: LedgerState, event: ReleaseProposed | VoidProposed | PolicyProposed
) -> Iterator[str]:
    match event:
        case ReleaseProposed():
            yield from _wrong_name(event.release, event.body)
            yield from _unreadable(state, event.body)
            if event.release in state.entries or state.newest_proposal("release", event.release):
                yield f"`{event.release}` is proposed, and was asked for before"
        case VoidProposed():
            yield from _unsaid(event.release, event.because)
            yield from _refused(lambda: find_reservation(state, event.release))
        case PolicyProposed():
            yield from _wrong_digest(compile_recorded_policy(event), event)


def _wrong_answer(state: LedgerState, event: ProposalAnswered) -> Iterator[str]:
    proposal = state.proposals.get(event.proposal)
    if proposal is None or not proposal.open:
        yield f"proposal {event.proposal} was not open, so there was nothing to answer"
    elif event.by in ("", proposal.by):
        yield f"proposal {event.proposal} was answered by the person who made it"


def _approved(event: Event, store: LedgerStore) -> Event | None:
    """What a second person approved in this event."""
    match event:
        case ProposalAnswered(proposal=number, approved=True):
            return read_event(store, number)
    return None


def _not_done(due: Event | None, event: Event | None) -> Iterator[str]:
    """What was approved is done by the next record, as it was proposed."""
    match due, event:
        case None, _:
            return
        case ReleaseProposed(), ReleaseDecided():
            held = due.reserve and event.allowed
            done = (due.by, held) == (event.by, event.reserved)
            done = done and encode_canonical(due.body) == encode_canonical(event.body)
        case VoidProposed(), ReleaseVoided():
            done = (due.by, due.release, due.because) == (event.by, event.release, event.because)
        case PolicyProposed(), PolicyApplied():
            said = (due.by, due.because, due.sources)
            done = said == (event.by, event.because, event.sources)
            done = done and set(event.accepted) <= set(due.accepted)
        case _:
            done = False
    if not done:
        yield "what a second person approved was not done as it was proposed"


def _wrong_policy(state: LedgerState, event: PolicyApplied) -> Iterator[str]:
    policy = compile_recorded_policy(event)
    yield from _wrong_digest(policy, event)
    broken = {c.rule.name for c in find_conflicts(state.with_policy(policy))} - set(event.accepted)
    if broken:
        yield f"a policy was applied over the conflict `{min(broken)}`"


def _wrong_digest(policy: CompiledPolicy, event: PolicyApplied | PolicyProposed) -> Iterator[str]:
    if policy.digest != event.digest:
        yield f"the policy is {policy.digest}, not {event.digest}"


def _wrong_end(
    state: LedgerState, event: ReleaseCommitted | ReleaseVoided | ReleaseExpired
) -> Iterator[str]:
    """What is wrong with the end of a reservation; from its time on, it can only expire."""
    entry = state.entry(event.release)
    if entry.status != RESERVED:
        yield f"`{event.release}` was {entry.status}, so there was no reservation to end"
        return
    passed = state.open_reservations[event.release] < event.at
    if isinstance(event, ReleaseExpired):
        if not passed:
            yield f"`{event.release}` expired before its time"
    elif passed:
        yield f"`{event.release}` was ended after its time"
    if isinstance(event, ReleaseVoided):
        yield from _unsaid(event.release, event.because)
    if isinstance(event, ReleaseCommitted) and event.body is not None:
        yield from _wrong_name(event.release, event.body)
        body = event.body
        yield from _refused(lambda: ensure_within_reservation(state, entry, body))


def _wrong_name(release: str, body: Body) -> Iterator[str]:
    if body["release"] != release:
        yield f"`{release}` holds another release"


def _unsaid(release: str, because: str) -> Iterator[str]:
    if not because.strip():
        yield f"`{release}` does not say `because`"


def _unreadable(state: LedgerState, body: Body) -> Iterator[str]:
    """Why a release that is not decided would have been refused; without a policy, it is not."""
    policy = state.policy
    if policy is not None:
        yield from _refused(lambda: resolve_or_reject(release_from_body(body), policy))


def _refused(check: Callable[[], object]) -> Iterator[str]:
    """Why the decision point would have refused, if it had."""
    try:
        check()
    except (InvalidValue, OperationRejected, ReleaseRejected) as error:
        yield str(error)


def _wrong_decision(state: LedgerState, event: ReleaseDecided) -> Iterator[str]:
    if state.policy is None:
        yield f"`{event.release}` was decided before there was a policy"
        return
    try:
        again = evaluate_release(state, release_from_body(event.body)).at_record(state.sequence + 1)
    except (InvalidValue, ReleaseRejected) as error:
        yield f"`{event.release}` cannot be read: {error}"
        return
    if event.reserved != (event.expires is not None) or (event.reserved and not event.allowed):
        yield f"`{event.release}` is said to be reserved, and not to be"
    given = _given(event.answer)
    if given is None or given.allowed != event.allowed:
        yield f"the answer to `{event.release}` says something else than its record"
    if again.allowed != event.allowed:
        word = "allowed" if event.allowed else "denied"
        yield f"`{event.release}` was {word}, and should not have been"
    elif given and _outline(given) != _outline(again):
        yield f"the answer to `{event.release}` says something else than comes out again"
    elif given and not _alike(given, again):
        yield f"the answer to `{event.release}` gives other reasons than come out again"


def _given(answer: str) -> Decision | None:
    """The decision that an answer tells; None if it is not the text of one."""
    try:
        given = Decision.from_json(json.loads(answer))
        text = json.dumps(given.as_json(), ensure_ascii=False, sort_keys=True)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return given if text == answer else None


def _outline(decision: Decision) -> tuple[object, ...]:
    """What was decided, where, and for which broken rules."""
    place = (decision.release, decision.allowed, decision.policy, decision.sequence)
    return (*place, decision.uncovered, decision.predicate_errors, sorted(decision.broken))


def _alike(given: Decision, again: Decision) -> bool:
    """Whether two answers with one outline give the same reasons and offers.

    What a process has seen before, such as voided releases, decides the order of reasons, which of
    equally tight rules are told, and which of equal places and spenders: that is free.
    """
    mine, theirs = _reasons(given), _reasons(again)
    return (
        given.counter_offers == again.counter_offers
        and len(given.reasons) == len(mine) == len(theirs)
        and (given.allowed or mine.keys() == theirs.keys())
        and all(mine[rule] == theirs[rule] for rule in mine.keys() & theirs.keys())
    )


def _reasons(decision: Decision) -> dict[tuple[str, str, bool], Reason]:
    """The reasons by rule, without what is free in them."""
    return {
        (r.rule, r.unit, r.each_release): replace(r, spenders=(), location={})
        for r in decision.reasons
    }
