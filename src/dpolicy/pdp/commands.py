"""What is done under the lock: each act checks the state, then writes one event, or raises.

An act that raises has written nothing, so that others in the same commit are not touched.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import InvariantBroken, OperationRejected, PolicyConflicts
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import (
    PolicyApplied,
    ReleaseCommitted,
    ReleaseDecided,
    ReleaseImported,
    ReleaseRelabelled,
    ReleaseVoided,
    release_body_in,
)
from dpolicy.pdp.conflicts import find_conflicts
from dpolicy.pdp.journal import WriteTransaction, format_timestamp
from dpolicy.pdp.ledger_state import SPENDING_STATUSES
from dpolicy.pdp.request_evaluation import (
    ensure_not_pending,
    ensure_within_reservation,
    evaluate_release,
    find_reservation,
    recorded_decision,
)
from dpolicy.releases.body import Body, loss_relevant_fields
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy

#: A reservation that nobody ends within this counts as spent for good.
RESERVATION_LIFETIME = timedelta(hours=24)


def decide_release(log: WriteTransaction, release: Release, by: str, *, reserve: bool) -> Decision:
    """Decide a release, or give back what was decided."""
    known = log.state.entries.get(release.id)
    if known is not None:
        return recorded_decision(log.event(known.request_record), known.status, release)
    ensure_not_pending(log.state, release.id)
    decision, event = release_decided_event(
        log, release, by, reserve=reserve, at=log.state.sequence + 1
    )
    log.append(event)
    return decision


def release_decided_event(
    log: WriteTransaction, release: Release, by: str, *, reserve: bool, at: int
) -> tuple[Decision, ReleaseDecided]:
    """What is decided of a release that is new, and the event that says so at its record."""
    decision = evaluate_release(log.state, release).at_record(at)
    expires = format_timestamp(log.now + RESERVATION_LIFETIME) if reserve else None
    return decision, ReleaseDecided(
        at=log.timestamp,
        by=by or release.by,
        release=release.id,
        body=release.body,
        allowed=decision.allowed,
        reserved=reserve and decision.allowed,
        expires=expires if decision.allowed else None,
        answer=json.dumps(decision.as_json(), ensure_ascii=False, sort_keys=True),
    )


def decide_batch(
    log: WriteTransaction, releases: Sequence[Release], by: str
) -> tuple[Decision, ...]:
    """Decide releases of which none may be denied."""
    decisions = tuple(decide_release(log, release, by, reserve=False) for release in releases)
    denied = [d.release for d in decisions if not (d.allowed or d.replayed)]
    if denied:
        raise InvariantBroken(f"`{denied[0]}` was chosen and does not fit")
    return decisions


def commit_reservation(log: WriteTransaction, release: str, body: Body | None, by: str) -> int:
    """End a reservation that was used."""
    entry = find_reservation(log.state, release)
    if body is not None:
        if body["release"] != release:
            raise OperationRejected(f"what was run is called `{body['release']}`, not `{release}`")
        ensure_within_reservation(log.state, entry, body)
    return log.append(ReleaseCommitted(log.timestamp, by, release, body))


def void_reservation(log: WriteTransaction, release: str, because: str, by: str) -> int:
    """End a reservation that was not used."""
    return log.append(release_voided_event(log, release, because, by))


def release_voided_event(
    log: WriteTransaction, release: str, because: str, by: str
) -> ReleaseVoided:
    """The event that ends a reservation."""
    ensure_voidable(log, release, because)
    return ReleaseVoided(log.timestamp, by, release, because)


def ensure_voidable(log: WriteTransaction, release: str, because: str) -> None:
    """Raise `Misused` unless a reservation can be given back."""
    if not because.strip():
        said = "say `because`: that nothing was computed must be attested"
        raise OperationRejected(said, "because-missing")
    find_reservation(log.state, release)


def apply_policy(
    log: WriteTransaction, policy: CompiledPolicy, accept: Sequence[str], by: str, because: str
) -> int:
    """Put a policy in force."""
    return log.append(policy_applied_event(log, policy, accept, by, because))


def policy_applied_event(
    log: WriteTransaction, policy: CompiledPolicy, accept: Sequence[str], by: str, because: str
) -> PolicyApplied:
    """The event that puts a policy in force. Raises `Conflicting`."""
    found = find_conflicts(log.state.with_policy(policy))
    left = [c for c in found if c.rule.name not in accept]
    if left:
        raise PolicyConflicts(left)
    sources = tuple((source.name, source.text) for source in policy.sources)
    accepted = tuple(c.rule.name for c in found)
    return PolicyApplied(log.timestamp, by, because, policy.digest, sources, accepted)


def import_release(log: WriteTransaction, release: Release, because: str, by: str) -> int:
    """Charge what has already happened."""
    known = log.state.entries.get(release.id)
    if known is not None:
        if encode_canonical(release_body_in(log.event(known.request_record))) != encode_canonical(
            release.body
        ):
            raise OperationRejected(
                f"the id `{release.id}` is taken by another release", "id-taken"
            )
        if known.status not in SPENDING_STATUSES:
            raise OperationRejected(
                f"`{release.id}` was {known.status}; import it under another id"
            )
        return known.request_record
    ensure_not_pending(log.state, release.id)
    if log.state.policy is not None:
        resolve_or_reject(release, log.state.policy)
    return log.append(
        ReleaseImported(log.timestamp, by or release.by, because, release.id, release.body)
    )


def relabel_release(log: WriteTransaction, release: Release, because: str, by: str) -> int:
    """Describe a release anew."""
    entry = log.state.entries.get(release.id)
    if entry is None:
        raise OperationRejected(f"there is no release `{release.id}`", "not-found")
    if not because.strip():
        raise OperationRejected(
            "say `because`: relabelling changes what is charged", "because-missing"
        )
    charged = release_body_in(log.event(entry.charge_record))
    if encode_canonical(loss_relevant_fields(charged)) != encode_canonical(
        loss_relevant_fields(release.body)
    ):
        raise OperationRejected(
            "relabelling keeps the mechanisms: only attributes, labels and names change"
        )
    if log.state.policy is not None:
        resolve_or_reject(release, log.state.policy)
    return log.append(ReleaseRelabelled(log.timestamp, by, because, release.id, release.body))
