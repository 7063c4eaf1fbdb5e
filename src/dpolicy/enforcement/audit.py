"""A ledger → whether it is what was written: chain, fold and every decision, from the first event.

Each recorded decision is made again from the state before it. An answer that comes out otherwise, a
record that does not follow the one before it, or one that is no event, is told with its number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from dpolicy.enforcement.check import certificates_of, decide
from dpolicy.enforcement.governance import conflicts
from dpolicy.enforcement.resolution import resolve
from dpolicy.enforcement.state import RESERVED, State, compiled_of
from dpolicy.errors import DPolicyError, InvalidValue
from dpolicy.ledger.events import (
    Event,
    PolicyApplied,
    Record,
    ReleaseCommitted,
    ReleaseDecided,
    ReleaseExpired,
    ReleaseImported,
    ReleaseVoided,
    check_chain,
    from_bytes,
)
from dpolicy.ledger.store import Store
from dpolicy.releases.body import release_of


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, at a record."""

    sequence: int
    problem: str


@dataclass(frozen=True, slots=True)
class Audit:
    """How far the ledger could be read, and what was found."""

    records: int
    head: str
    findings: tuple[Finding, ...]


def verify(store: Store) -> Audit:
    """Read a ledger from its first record and make every decision again."""
    state = State()
    findings: list[Finding] = []
    try:
        for record in store.after(0):
            check_chain(state.head, record)
            event = from_bytes(record.payload)
            findings += [Finding(record.sequence, p) for p in _wrong(state, event)]
            state.follow([record])
    except DPolicyError as error:
        findings.append(Finding(state.sequence + 1, str(error)))
    head = state.head.digest.hex() if state.head else ""
    return Audit(state.sequence, head, tuple(findings))


def _wrong(state: State, event: Event) -> Iterator[str]:
    """What the decision point would not have written in this state."""
    match event:
        case ReleaseDecided():
            yield from _wrong_decision(state, event)
        case PolicyApplied():
            policy = compiled_of(event)
            if policy.digest != event.digest:
                yield f"the policy is {policy.digest}, not {event.digest}"
            broken = {c.rule.name for c in conflicts(state.under(policy))} - set(event.accepted)
            if broken:
                yield f"a policy was applied over the conflict `{min(broken)}`"
        case ReleaseCommitted() | ReleaseVoided() | ReleaseExpired():
            status = state.entry(event.release).status
            if status != RESERVED:
                yield f"`{event.release}` was {status}, so there was no reservation to end"
        case ReleaseImported() if event.body.get("release") != event.release:
            yield f"`{event.release}` holds another release"


def _wrong_decision(state: State, event: ReleaseDecided) -> Iterator[str]:
    if state.policy is None:
        yield f"`{event.release}` was decided before there was a policy"
        return
    said = _answered(event.answer)
    if said != (event.release, "allow" if event.allowed else "deny", state.policy.digest):
        yield f"the answer to `{event.release}` says something else than its record"
    if event.body.get("release") != event.release:
        yield f"`{event.release}` holds another release"
    try:
        release = release_of(event.body)
        mechanisms, problems = resolve(release, state.policy, certificates_of(state.policy))
    except InvalidValue as error:
        yield f"`{event.release}` cannot be read: {error.message}"
        return
    allowed = not problems and decide(state.policy, state.balances, mechanisms).allowed
    if allowed != event.allowed:
        word = "allowed" if event.allowed else "denied"
        yield f"`{event.release}` was {word}, and should not have been"


def _answered(answer: str) -> tuple[object, ...] | None:
    """The release, decision and policy that an answer names."""
    try:
        said = json.loads(answer)
        return said["release"], said["decision"], said["policy"]
    except (ValueError, KeyError, TypeError):
        return None


def records(store: Store) -> Iterator[tuple[Record, Event]]:
    """Every record with its event, in order."""
    for record in store.after(0):
        yield record, from_bytes(record.payload)
