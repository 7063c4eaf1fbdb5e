"""Audit: recomputation of the hash chain, the fold and every decision, from the first record.

Every event but a decision is checked against the preconditions of its command. A finding names the
record at which a decision differs, the chain breaks, or an event is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dpolicy.decisions.completion import Reading
from dpolicy.decisions.resolution import complete_or_none, resolve_or_reject
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
    RelabellingProposed,
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
from dpolicy.ledger.timestamps import first_day_of_month
from dpolicy.pdp.audits.recorded_decisions import check_decision, choose_reading
from dpolicy.pdp.audits.repeated_decisions import RepeatedDecisions
from dpolicy.pdp.journal.folded_ledger import read_event
from dpolicy.pdp.many_releases.import_commands import ensure_past_day
from dpolicy.pdp.policy_changes.conflicts import find_all_conflicts
from dpolicy.pdp.policy_changes.recorded_policy import compile_recorded_policy
from dpolicy.pdp.policy_changes.redefinitions import find_redefinitions
from dpolicy.pdp.relabelling import find_forbidden_change, lowers_charge
from dpolicy.pdp.request_evaluation import (
    ensure_not_pending,
    ensure_same_statements,
    ensure_within_reservation,
    require_reservation,
)
from dpolicy.pdp.state.charge_groups import NO_MEANING
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.release_archive import RESERVED
from dpolicy.releases.body import Body, release_from_body
from dpolicy.releases.meaning import meaning_to_text
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A problem at a record."""

    sequence: int
    problem: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Number and hash of the last valid record, and all findings."""

    records: int
    head: str
    findings: tuple[AuditFinding, ...]


def audit_ledger(store: LedgerStore, repeated: RepeatedDecisions | None = None) -> AuditReport:
    """Audit a ledger from its first record; `repeated` confirms contents that were checked before.

    Raise `LedgerUnavailable` if the store cannot be read; that is not a finding.
    """
    state = LedgerState()
    findings: list[AuditFinding] = []
    approved: Event | None = None
    has_new_format = False
    repeated = repeated or RepeatedDecisions()
    try:
        for record in store.records_after(0):
            check_chain(state.head, record)
            if approved is None and repeated.fold_known_content(state, record):
                has_new_format = True
                continue
            event = from_bytes(record.payload)
            state.now = first_day_of_month(event.at)
            problems = [
                *_check_event(state, event, store, approved),
                *_check_executed(approved, event),
                *(_check_format(event, approved) if has_new_format else ()),
            ]
            has_new_format = has_new_format or is_new_format(event)
            findings += [AuditFinding(record.sequence, problem) for problem in problems]
            if not problems:
                repeated.add(state, event, record)
            state.fold([record])
            approved = _find_approved_event(event, store)
        findings += [AuditFinding(state.sequence, p) for p in _check_executed(approved, None)]
    except LedgerUnavailable:
        raise
    except DPolicyError as error:
        findings.append(AuditFinding(state.sequence + 1, str(error)))
    head = state.head.digest.hex() if state.head else ""
    return AuditReport(state.sequence, head, tuple(findings))


def records_with_events(store: LedgerStore) -> Iterator[tuple[Record, Event]]:
    """Yield every record with its event, in order."""
    for record in store.records_after(0):
        yield record, from_bytes(record.payload)


# Each check below yields the reasons why the decision point would not have written an event.


def _check_event(
    state: LedgerState, event: Event, store: LedgerStore, approved: Event | None
) -> Iterator[str]:
    match event:
        case PolicyApplied():
            yield from _check_policy(state, event)
        case ReleaseDecided():
            yield from _check_id(event.release, event.body)
            yield from _check_raises(lambda: ensure_not_pending(state, event.release))
            yield from check_decision(state, event)
            yield from _check_meaning(state, event.release, event.body, event.meaning)
        case ReleaseImported():
            yield from _check_id(event.release, event.body)
            yield from _check_raises(lambda: ensure_not_pending(state, event.release))
            yield from _check_resolution(state, event.body, choose_reading(event.meaning))
            yield from _check_meaning(state, event.release, event.body, event.meaning)
            yield from _check_raises(lambda: ensure_past_day(event.released, event.at))
        case ReleaseRelabelled():
            is_approved = isinstance(approved, RelabellingProposed)
            yield from _check_relabelling(state, event, store, is_approved=is_approved)
        case ReleaseCommitted() | ReleaseVoided() | ReleaseExpired():
            yield from _check_end(state, event)
        case ReleaseProposed() | VoidProposed() | RelabellingProposed() | PolicyProposed():
            yield from _check_proposal(state, event, store)
        case ProposalAnswered():
            yield from _check_answer(state, event)


def is_new_format(event: Event) -> bool:
    """Return whether an event has a field that format 3 added."""
    return getattr(event, "meaning", None) is not None or (
        getattr(event, "defaults", None) is not None
    )


def _check_format(event: Event, approved: Event | None) -> Iterator[str]:
    """Check that a record is not older in format than the records before it.

    A policy that was proposed in an older format keeps the defaults of its proposal.
    """
    match event:
        case ReleaseDecided() | ReleaseImported() | ReleaseRelabelled() | ReleaseProposed():
            is_old = event.meaning is None
        case ReleaseCommitted():
            is_old = event.body is not None and event.meaning is None
        case PolicyApplied() | PolicyProposed():
            executes_old = isinstance(approved, PolicyProposed) and approved.defaults is None
            is_old = event.defaults is None and not executes_old
        case _:
            is_old = False
    if is_old:
        yield "the record has an older format than a record before it"


def _check_relabelling(
    state: LedgerState, event: ReleaseRelabelled, store: LedgerStore, *, is_approved: bool
) -> Iterator[str]:
    """Check a correction; a correction of format 3 that lowers a charge needs an approval."""
    yield from _check_correction(state, event, store, choose_reading(event.meaning))
    if event.meaning is None:
        return
    yield from _check_meaning(state, event.release, event.body, event.meaning)
    entry = state.entry(event.release)
    state.update_balances()
    release = release_from_body(event.body)
    if not is_approved and lowers_charge(state, entry, release, event.meaning):
        yield f"`{event.release}` was relabelled to a lower charge without a second person"


def _check_correction(
    state: LedgerState,
    event: ReleaseRelabelled | RelabellingProposed,
    store: LedgerStore,
    reading: Reading = Reading.STRICT,
) -> Iterator[str]:
    yield from _check_id(event.release, event.body)
    yield from _check_resolution(state, event.body, reading)
    yield from _check_because(event.release, event.because)
    charged = release_body_in(read_event(store, state.entry(event.release).charge_record))
    problem = find_forbidden_change(charged, event.body)
    if problem is not None and (reading is Reading.STRICT or "`by`" not in problem):
        yield f"`{event.release}` was relabelled: {problem}"


def _check_proposal(
    state: LedgerState,
    event: ReleaseProposed | VoidProposed | RelabellingProposed | PolicyProposed,
    store: LedgerStore,
) -> Iterator[str]:
    match event:
        case ReleaseProposed():
            yield from _check_id(event.release, event.body)
            yield from _check_resolution(state, event.body)
            earlier = state.proposals.newest("release", event.release)
            if event.release in state.entries or earlier is not None:
                yield f"`{event.release}` was proposed, but its id was already in use"
        case VoidProposed():
            yield from _check_because(event.release, event.because)
            yield from _check_raises(lambda: require_reservation(state, event.release))
        case RelabellingProposed():
            yield from _check_correction(state, event, store)
        case PolicyProposed():
            yield from _check_digest(compile_recorded_policy(event), event)


def _check_answer(state: LedgerState, event: ProposalAnswered) -> Iterator[str]:
    proposal = state.proposals.get(event.proposal)
    if proposal is None or not proposal.open:
        yield f"proposal {event.proposal} was answered, but it was not open"
    elif event.by in ("", proposal.by):
        yield f"proposal {event.proposal} was answered by the person who made it"


def _find_approved_event(event: Event, store: LedgerStore) -> Event | None:
    """Return the proposal that an event approves."""
    match event:
        case ProposalAnswered(proposal=number, approved=True):
            return read_event(store, number)
    return None


def _check_executed(proposal: Event | None, event: Event | None) -> Iterator[str]:
    """Check that the record after an approval carries out the proposal unchanged."""
    match proposal, event:
        case None, _:
            return
        case ReleaseProposed(), ReleaseDecided():
            expected_reserved = proposal.reserve and event.allowed
            is_done = (proposal.by, expected_reserved) == (event.by, event.reserved)
            is_done = is_done and encode_canonical(proposal.body) == encode_canonical(event.body)
            is_done = is_done and proposal.meaning in (None, event.meaning)
        case RelabellingProposed(), ReleaseRelabelled():
            is_done = (proposal.by, proposal.because) == (event.by, event.because)
            is_done = is_done and proposal.meaning == event.meaning
            is_done = is_done and encode_canonical(proposal.body) == encode_canonical(event.body)
        case VoidProposed(), ReleaseVoided():
            expected = (proposal.by, proposal.release, proposal.because)
            is_done = expected == (event.by, event.release, event.because)
        case PolicyProposed(), PolicyApplied():
            proposed_policy = (proposal.by, proposal.because, proposal.sources, proposal.defaults)
            is_done = proposed_policy == (event.by, event.because, event.sources, event.defaults)
            is_done = is_done and set(event.accepted) <= set(proposal.accepted)
        case _:
            is_done = False
    if not is_done:
        yield "an approved proposal was not executed as proposed"


def _check_policy(state: LedgerState, event: PolicyApplied) -> Iterator[str]:
    policy = compile_recorded_policy(event)
    yield from _check_digest(policy, event)
    conflicts = {conflict.name for conflict in find_all_conflicts(state, policy)}
    if event.defaults is None:  # a record of format 1 did not have to accept redefinitions
        conflicts -= {redefinition.name for redefinition in find_redefinitions(state, policy)}
    not_accepted = conflicts - set(event.accepted)
    if not_accepted:
        yield f"a policy was applied with the unaccepted conflict `{min(not_accepted)}`"


def _check_digest(policy: CompiledPolicy, event: PolicyApplied | PolicyProposed) -> Iterator[str]:
    if policy.digest != event.digest:
        yield f"the digest of the policy is {policy.digest}, not {event.digest}"


def _check_end(
    state: LedgerState, event: ReleaseCommitted | ReleaseVoided | ReleaseExpired
) -> Iterator[str]:
    """Check the end of a reservation; after its expiry time, only expiry is valid."""
    entry = state.entry(event.release)
    if entry.status != RESERVED:
        yield f"`{event.release}` was {entry.status}, so there was no reservation to end"
        return
    is_past_expiry = state.open_reservations[event.release] < event.at
    if isinstance(event, ReleaseExpired):
        if not is_past_expiry:
            yield f"`{event.release}` was recorded as expired before its expiry time"
    elif is_past_expiry:
        yield f"`{event.release}` was committed or voided after it expired"
    if isinstance(event, ReleaseVoided):
        yield from _check_because(event.release, event.because)
    if isinstance(event, ReleaseCommitted) and event.body is not None:
        yield from _check_id(event.release, event.body)
        used, reading = release_from_body(event.body), choose_reading(event.meaning)
        yield from _check_raises(lambda: ensure_within_reservation(state, entry, used, reading))
        yield from _check_meaning(state, event.release, event.body, event.meaning)
        if event.meaning is not None:
            meaning = event.meaning
            yield from _check_raises(lambda: ensure_same_statements(state, entry, meaning))


def _check_id(release: str, body: Body) -> Iterator[str]:
    if body["release"] != release:
        yield f"the body of `{release}` has the id `{body['release']}`"


def _check_because(release: str, because: str) -> Iterator[str]:
    if not because.strip():
        yield f"`{release}` has no `because`"


def _check_resolution(
    state: LedgerState, body: Body, reading: Reading = Reading.STRICT
) -> Iterator[str]:
    """Check that the active policy can resolve a release; without a policy, check nothing."""
    enforced = state.enforced
    if enforced is not None:
        yield from _check_raises(
            lambda: resolve_or_reject(release_from_body(body), enforced, reading)
        )


def _check_meaning(
    state: LedgerState, release: str, body: Body, meaning: str | None
) -> Iterator[str]:
    """Check that the recorded meaning is that of the release under the active policy.

    Another check reports a release that the policy cannot resolve.
    """
    if meaning is None:
        return
    try:
        expected = _complete_text(state, release_from_body(body))
    except InvalidValue:
        return
    if expected not in (None, meaning):
        yield f"`{release}` has another meaning under the active policy than its record"


def _complete_text(state: LedgerState, release: Release) -> str | None:
    """Return the meaning of a release now; None if the active policy cannot resolve it."""
    if state.policy is None:
        return NO_MEANING
    meaning = complete_or_none(release, state.policy)
    return None if meaning is None else meaning_to_text(meaning)


def _check_raises(check: Callable[[], object]) -> Iterator[str]:
    """Yield the message if a check raises."""
    try:
        check()
    except (InvalidValue, OperationRejected, ReleaseRejected) as error:
        yield str(error)
