"""A ledger → whether it is what was written: chain, fold and every decision, from the first event.

Each recorded decision is made again from the state before it. An answer that comes out otherwise, a
record that does not follow the one before it, or one that is no event, is told with its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dpolicy.enforcement.check import certificates_of, decide
from dpolicy.enforcement.resolution import resolve
from dpolicy.enforcement.state import State
from dpolicy.errors import DPolicyError, InvalidValue
from dpolicy.ledger.events import Event, Record, ReleaseDecided, check_chain, from_bytes
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
            state.apply(event, record)
    except DPolicyError as error:
        findings.append(Finding(state.sequence + 1, str(error)))
    head = state.head.digest.hex() if state.head else ""
    return Audit(state.sequence, head, tuple(findings))


def _wrong(state: State, event: Event) -> Iterator[str]:
    if not isinstance(event, ReleaseDecided):
        return
    if state.policy is None:
        yield f"`{event.release}` was decided before there was a policy"
        return
    try:
        release = release_of(event.body)
        mechanisms, problems = resolve(release, state.policy, certificates_of(state.policy))
    except InvalidValue as error:
        yield f"`{event.release}` cannot be read: {error.message}"
        return
    allowed = not problems and decide(state.policy, state.spent, mechanisms).allowed
    if allowed != event.allowed:
        said = "allowed" if event.allowed else "denied"
        yield f"`{event.release}` was {said}, and should not have been"


def records(store: Store) -> Iterator[tuple[Record, Event]]:
    """Every record with its event, in order."""
    for record in store.after(0):
        yield record, from_bytes(record.payload)
