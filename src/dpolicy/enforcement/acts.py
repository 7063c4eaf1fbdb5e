"""What is done under the lock: each act checks the state, then writes one event, or raises.

An act that raises has written nothing, so that others in the same commit are not touched.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

from dpolicy.enforcement.governance import conflicts
from dpolicy.enforcement.journal import Writing, stamp
from dpolicy.enforcement.judgement import (
    check_less,
    judge,
    losses_of,
    not_proposed,
    readable,
    replayed,
    reservation,
)
from dpolicy.enforcement.state import COUNTED
from dpolicy.errors import Conflicting, InvariantBroken, Misused
from dpolicy.ledger.canonical import encode
from dpolicy.ledger.events import (
    PolicyApplied,
    ReleaseCommitted,
    ReleaseDecided,
    ReleaseImported,
    ReleaseRelabelled,
    ReleaseVoided,
    body_of,
)
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.request import Release
from dpolicy.rules.compiler import CompiledPolicy

#: A reservation that nobody ends within this counts as spent for good.
RESERVATION = timedelta(hours=24)


def decide(log: Writing, release: Release, by: str, *, reserve: bool) -> Decision:
    """Decide a release, or give back what was decided."""
    known = log.state.entries.get(release.id)
    if known is not None:
        return replayed(log.event(known.asked), known.status, release)
    not_proposed(log.state, release.id)
    decision, event = decided(log, release, by, reserve=reserve, at=log.state.sequence + 1)
    log.emit(event)
    return decision


def decided(
    log: Writing, release: Release, by: str, *, reserve: bool, at: int
) -> tuple[Decision, ReleaseDecided]:
    """What is decided of a release that is new, and the event that says so at its record."""
    decision = judge(log.state, release).placed(at)
    expires = stamp(log.now + RESERVATION) if reserve else None
    return decision, ReleaseDecided(
        at=log.at,
        by=by or release.by,
        release=release.id,
        body=release.body,
        allowed=decision.allowed,
        reserved=reserve and decision.allowed,
        expires=expires if decision.allowed else None,
        answer=json.dumps(decision.as_json(), ensure_ascii=False, sort_keys=True),
    )


def decide_together(log: Writing, releases: Sequence[Release], by: str) -> tuple[Decision, ...]:
    """Decide releases of which none may be denied."""
    decisions = tuple(decide(log, release, by, reserve=False) for release in releases)
    denied = [d.release for d in decisions if not (d.allowed or d.replayed)]
    if denied:
        raise InvariantBroken(f"`{denied[0]}` was chosen and does not fit")
    return decisions


def commit(log: Writing, release: str, body: Body | None, by: str) -> int:
    """End a reservation that was used."""
    entry = reservation(log.state, release)
    if body is not None:
        if body["release"] != release:
            raise Misused(f"what was run is called `{body['release']}`, not `{release}`")
        check_less(log.state, entry, body)
    return log.emit(ReleaseCommitted(log.at, by, release, body))


def void(log: Writing, release: str, because: str, by: str) -> int:
    """End a reservation that was not used."""
    return log.emit(voided(log, release, because, by))


def voided(log: Writing, release: str, because: str, by: str) -> ReleaseVoided:
    """The event that ends a reservation."""
    check_void(log, release, because)
    return ReleaseVoided(log.at, by, release, because)


def check_void(log: Writing, release: str, because: str) -> None:
    """Raise `Misused` unless a reservation can be given back."""
    if not because.strip():
        said = "say `because`: that nothing was computed must be attested"
        raise Misused(said, "because-missing")
    reservation(log.state, release)


def apply(
    log: Writing, policy: CompiledPolicy, accept: Sequence[str], by: str, because: str
) -> int:
    """Put a policy in force."""
    return log.emit(applied(log, policy, accept, by, because))


def applied(
    log: Writing, policy: CompiledPolicy, accept: Sequence[str], by: str, because: str
) -> PolicyApplied:
    """The event that puts a policy in force. Raises `Conflicting`."""
    found = conflicts(log.state.under(policy))
    left = [c for c in found if c.rule.name not in accept]
    if left:
        raise Conflicting(left)
    sources = tuple((source.name, source.text) for source in policy.sources)
    accepted = tuple(c.rule.name for c in found)
    return PolicyApplied(log.at, by, because, policy.digest, sources, accepted)


def import_past(log: Writing, release: Release, because: str, by: str) -> int:
    """Charge what has already happened."""
    known = log.state.entries.get(release.id)
    if known is not None:
        if encode(body_of(log.event(known.asked))) != encode(release.body):
            raise Misused(f"the id `{release.id}` is taken by another release", "id-taken")
        if known.status not in COUNTED:
            raise Misused(f"`{release.id}` was {known.status}; import it under another id")
        return known.asked
    not_proposed(log.state, release.id)
    if log.state.policy is not None:
        readable(release, log.state.policy)
    return log.emit(ReleaseImported(log.at, by or release.by, because, release.id, release.body))


def relabel(log: Writing, release: Release, because: str, by: str) -> int:
    """Describe a release anew."""
    entry = log.state.entries.get(release.id)
    if entry is None:
        raise Misused(f"there is no release `{release.id}`", "not-found")
    if not because.strip():
        raise Misused("say `because`: relabelling changes what is charged", "because-missing")
    charged = body_of(log.event(entry.charged))
    if encode(losses_of(charged)) != encode(losses_of(release.body)):
        raise Misused("relabelling keeps the mechanisms: only attributes, labels and names change")
    if log.state.policy is not None:
        readable(release, log.state.policy)
    return log.emit(ReleaseRelabelled(log.at, by, because, release.id, release.body))
