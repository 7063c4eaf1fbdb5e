"""Commands executed under the write lock.

A command checks the ledger state and appends one event, or raises. A command that raises appends
nothing, so other commands in the same commit are unaffected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from dpolicy.decisions.completion import complete_meaning
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import (
    DPolicyError,
    InvariantBroken,
    OperationRejected,
    PolicyConflicts,
    ReleaseRejected,
)
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import (
    PolicyApplied,
    ReleaseCommitted,
    ReleaseDecided,
    ReleaseVoided,
    release_body_in,
)
from dpolicy.ledger.timestamps import expiry_time
from dpolicy.pdp.journal.journal import Journal, Result
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.plans.decision_plan import DecisionPlan
from dpolicy.pdp.plans.planned_requests import PlannedRequest, RejectedContent
from dpolicy.pdp.plans.record_text import PlannedAnswer
from dpolicy.pdp.policy_changes.conflicts import PolicyConflict, find_all_conflicts
from dpolicy.pdp.policy_changes.prepared_policy import PreparedPolicy
from dpolicy.pdp.request_evaluation import (
    active_policy,
    decide_mechanisms,
    ensure_not_pending,
    ensure_same_statements,
    ensure_within_reservation,
    explain_verdict,
    is_id_used,
    recorded_decision,
    require_open_reservation,
)
from dpolicy.pdp.state.charge_groups import NO_MEANING, Resolution
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.releases.authors import fill_author, require_author
from dpolicy.releases.decision import Decision
from dpolicy.releases.meaning import meaning_to_text
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy

#: Number of conflicts that a message lists.
_MAX_LISTED_CONFLICTS = 20


class AnyPolicy:
    """Type of `ANY_POLICY`."""


#: Value of `expected_policy` for a command that may run under any policy. None means a ledger
#: without a policy.
ANY_POLICY = AnyPolicy()

ExpectedPolicy = CompiledPolicy | AnyPolicy | None

#: A decision, or the recorded text of the decision on an allowed release.
Answer = Decision | str

#: A decision, or the answer of a plan, which `read_answer` reads after the commit.
RecordedAnswer = Decision | PlannedAnswer


def write_under_policy(
    journal: Journal,
    command: Callable[[WriteTransaction], Result],
    expected_policy: ExpectedPolicy,
    size: int = 1,
) -> Result:
    """Run a command as the writer. Raise `OperationRejected` if another policy is active.

    `size` is the largest number of records that it appends.
    """

    def check_and_run(log: WriteTransaction) -> Result:
        ensure_policy(log.state, expected_policy)
        return command(log)

    return journal.write(check_and_run, size)


def ensure_policy(state: LedgerState, expected_policy: ExpectedPolicy) -> None:
    """Raise `OperationRejected` if the active policy is not the expected one."""
    if isinstance(expected_policy, AnyPolicy):
        return
    active, expected = state.policy, expected_policy
    if (active and active.digest) != (expected and expected.digest):
        raise OperationRejected(
            "the active policy changed during the request; review it and retry", "policy-changed"
        )


def ensure_same_meaning(state: LedgerState, release: Release, proposed: str | None) -> None:
    """Raise `OperationRejected` unless a proposed release still means what it did.

    A proposal of format 2 has no meaning and is not checked.
    """
    if proposed is not None and meaning_text(state, release) != proposed:
        raise OperationRejected(
            f"the active policy reads `{release.id}` otherwise than when it was proposed; reject "
            "the proposal, and propose it again",
            "policy-changed",
        )


def decide_release(
    log: WriteTransaction,
    release: Release,
    by: str,
    *,
    reserve: bool,
    resolved: DecisionPlan | RejectedContent | None = None,
) -> Decision:
    """Decide a release and record the decision; return the recorded one for a repeated id.

    `resolved` is the release under a policy and a day. If the state still has both, the release is
    not resolved again.
    """
    recorded = find_recorded_decision(log, release)
    if recorded is not None:
        return recorded
    ensure_not_pending(log.state, release.id)
    mechanisms, meaning = _resolve(log.state, release, resolved)
    log.state.update_balances()
    verdict = decide_mechanisms(log.state, mechanisms)
    decision = explain_verdict(log.state, release, verdict).at_record(log.state.sequence + 1)
    event = release_decided_event(log, release, decision, by, meaning, reserve=reserve)
    log.append(event, resolution=mechanisms)
    return decision


def _resolve(
    state: LedgerState, release: Release, resolved: DecisionPlan | RejectedContent | None
) -> tuple[Resolution, str]:
    """Return the mechanisms and the meaning of a release. Raise `ReleaseRejected`."""
    if resolved is None or not resolved.is_for(state.enforced, state.today):
        mechanisms = resolve_or_reject(release, active_policy(state))
        return mechanisms, meaning_text(state, release)
    if isinstance(resolved, RejectedContent):
        raise ReleaseRejected(resolved.problems)
    return resolved.resolved.mechanisms, resolved.meaning


def decide_request(
    log: WriteTransaction, request: PlannedRequest, by: str, *, reserve: bool
) -> RecordedAnswer:
    """Decide a request, by its plan if that applies."""
    if request.plan is not None:
        answer = decide_by_plan(log, request.plan, request.id, reserve=reserve)
        if answer is not None:
            return answer
    resolved = request.plan or request.rejected
    return decide_release(log, request.read_release(), by, reserve=reserve, resolved=resolved)


def decide_by_plan(
    log: WriteTransaction, plan: DecisionPlan, release: str, *, reserve: bool
) -> PlannedAnswer | None:
    """Decide a release with a plan of its content and record the decision; return the answer.

    Return None, without a record, if the plan does not apply or the id is not new. The record is
    that of `decide_release`. Raise `ReleaseRejected` as that does.
    """
    state = log.state
    if plan.fixed is None or is_id_used(state, release):
        return None
    state.update_balances()
    answer = plan.answer(state, release)
    if answer is None:
        return None
    if answer.allowed:
        plan.ensure_few_cuts(state)
    is_reserved = reserve and answer.allowed
    expires = expiry_time(log.timestamp) if is_reserved else None
    payload = plan.record.payload(answer, release, log.timestamp, expires)
    planned = plan.planned_release(release, log.timestamp, expires, allowed=answer.allowed)
    log.append_by_plan(payload, planned)
    return answer


def read_answer(answer: RecordedAnswer | DPolicyError) -> Answer | DPolicyError:
    """Return the text of a planned answer that allows, the decision of another planned answer."""
    if isinstance(answer, PlannedAnswer):
        return answer.text if answer.allowed else answer.decision
    return answer


def meaning_text(state: LedgerState, release: Release) -> str:
    """Return the meaning that the record of a release keeps; empty without an active policy."""
    if state.policy is None:
        return NO_MEANING
    return meaning_to_text(complete_meaning(release, state.policy))


def find_recorded_decision(log: WriteTransaction, release: Release) -> Decision | None:
    """Return the decision that the ledger has for this id; None if the id is new."""
    entry = log.state.entries.get(release.id)
    if entry is None:
        return None
    event = log.event(entry.request_record)
    return recorded_decision(log.state, event, entry.status, release)


def release_decided_event(
    log: WriteTransaction,
    release: Release,
    decision: Decision,
    by: str,
    meaning: str,
    *,
    reserve: bool,
) -> ReleaseDecided:
    """Return the event of a decision; only an allowed release is reserved."""
    reserved = reserve and decision.allowed
    return ReleaseDecided(
        at=log.timestamp,
        by=by or release.by,
        release=release.id,
        body=release.body,
        allowed=decision.allowed,
        reserved=reserved,
        expires=expiry_time(log.timestamp) if reserved else None,
        answer=json.dumps(decision.as_json(), ensure_ascii=False, sort_keys=True),
        meaning=meaning,
    )


def decide_batch(
    log: WriteTransaction, releases: Sequence[Release], by: str
) -> tuple[Decision, ...]:
    """Decide the selected releases of an allocation round.

    Raise `InvariantBroken` if one is denied: the round selected releases that do not fit.
    """
    authored = [fill_author(release, by) for release in releases]
    decisions = tuple(decide_release(log, release, by, reserve=False) for release in authored)
    denied = [d.release for d in decisions if not (d.allowed or d.replayed)]
    if denied:
        raise InvariantBroken(f"the round selected `{denied[0]}`, which is denied")
    return decisions


def commit_reservation(log: WriteTransaction, release: str, used: Release | None, by: str) -> int:
    """End a reservation as used, wholly or by the smaller release `used`."""
    entry = require_open_reservation(log.state, release, log.timestamp)
    if used is None:
        return log.append(ReleaseCommitted(log.timestamp, by, release, None))
    if used.id != release:
        raise OperationRejected(f"the used release has the id `{used.id}`, not `{release}`")
    charged = release_body_in(log.event(entry.charge_record))
    used = require_author(used, charged.get("by", ""))
    if encode_canonical(used.body) == encode_canonical(charged):
        return log.append(ReleaseCommitted(log.timestamp, by, release, None))
    ensure_within_reservation(log.state, entry, used)
    meaning = meaning_text(log.state, used)
    ensure_same_statements(log.state, entry, meaning)
    return log.append(ReleaseCommitted(log.timestamp, by, release, used.body, meaning))


def void_reservation(log: WriteTransaction, release: str, because: str, by: str) -> int:
    """End a reservation as unused."""
    return log.append(release_voided_event(log, release, because, by))


def release_voided_event(
    log: WriteTransaction, release: str, because: str, by: str
) -> ReleaseVoided:
    """Return the event that ends a reservation as unused. Raise `OperationRejected`."""
    ensure_voidable(log, release, because)
    return ReleaseVoided(log.timestamp, by, release, because)


def ensure_voidable(log: WriteTransaction, release: str, because: str) -> None:
    """Raise `OperationRejected` unless the release is reserved and `because` is not empty."""
    if not because.strip():
        raise OperationRejected(
            "`because` is required: it attests that nothing was computed from data",
            "because-missing",
        )
    require_open_reservation(log.state, release, log.timestamp)


def apply_policy(
    log: WriteTransaction,
    policy: CompiledPolicy,
    accept: Sequence[str] | str,
    by: str,
    because: str,
    prepared: PreparedPolicy | None = None,
) -> int:
    """Activate a policy. Raise `PolicyConflicts` unless all conflicts are accepted by name.

    The fold takes over the totals of a `prepared` policy. Raise `PreparationOutdated` if its
    conflicts changed.
    """
    event = policy_applied_event(log, policy, accept, by, because, prepared=prepared)
    log.state.offer_totals(prepared.offered if prepared else None)
    return log.append(event)


def policy_applied_event(
    log: WriteTransaction,
    policy: CompiledPolicy,
    accept: Sequence[str] | str,
    by: str,
    because: str,
    *,
    is_approved: bool = False,
    prepared: PreparedPolicy | None = None,
) -> PolicyApplied:
    """Return the event that activates a policy. Raise `PolicyConflicts`.

    `accept` has names of conflicts; a text is one name. Raise `OperationRejected` for a name that
    is no conflict. A conflict of an approved proposal may be gone. The event has the number of the
    defaults with which the policy was compiled.
    """
    names = frozenset([accept] if isinstance(accept, str) else accept)
    conflicts = prepared.catch_up(log.state) if prepared else find_all_conflicts(log.state, policy)
    ensure_conflicts_are_accepted(names, conflicts, is_approved=is_approved)
    sources = tuple((source.name, source.text) for source in policy.sources)
    accepted = tuple(conflict.name for conflict in conflicts)
    number = policy.accounting.defaults.number
    return PolicyApplied(log.timestamp, by, because, policy.digest, sources, accepted, number)


def ensure_conflicts_are_accepted(
    names: frozenset[str], conflicts: Sequence[PolicyConflict], *, is_approved: bool = False
) -> None:
    """Raise `PolicyConflicts` unless `names` has all conflicts.

    Raise `OperationRejected` for a name that is no conflict, unless a proposal was approved.
    """
    if not is_approved:
        _ensure_conflicts(names, [conflict.name for conflict in conflicts])
    not_accepted = [conflict for conflict in conflicts if conflict.name not in names]
    if not_accepted:
        raise PolicyConflicts(not_accepted)


def _ensure_conflicts(names: frozenset[str], conflicts: Sequence[str]) -> None:
    """Raise `OperationRejected` if a name is no conflict."""
    unknown = sorted(names - set(conflicts))
    if unknown:
        listed = [f"`{name}`" for name in conflicts[:_MAX_LISTED_CONFLICTS]]
        more = len(conflicts) - len(listed)
        rest = [f"and {more} more"] if more else []
        text = f"conflicts: {', '.join(listed + rest)}" if listed else "the policy has no conflicts"
        raise OperationRejected(
            f"no conflict `{unknown[0]}`; {text}; help: accept only conflicts, by their full names"
        )
