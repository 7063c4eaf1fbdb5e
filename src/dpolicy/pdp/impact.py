"""A candidate policy and a history → what would have been decided otherwise (platforms 3.1).

Every release that was asked for is decided again, in order, on what the candidate would have
allowed before it. What happened stays as it was: past releases are charged, and what was reserved
ends as it did.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from dpolicy.decisions.decide import decide
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import InvalidValue, ReleaseRejected
from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import (
    Event,
    PolicyApplied,
    ReleaseCommitted,
    ReleaseDecided,
    ReleaseExpired,
    ReleaseImported,
    ReleaseRelabelled,
    ReleaseVoided,
    from_bytes,
    next_record,
)
from dpolicy.pdp.ledger_state import RESERVED, LedgerState, first_day_of_month
from dpolicy.releases.body import release_from_body
from dpolicy.rules.compiler import CompiledPolicy

#: Releases that are decided again: a few thousand a second, and nobody waits for minutes.
MAX_REPLAYED_RELEASES = 20_000


@dataclass(frozen=True, slots=True)
class PolicyImpact:
    """How many releases were decided again, and which would have been decided otherwise.

    `unreadable` are those that the candidate has no words for; they are counted as denied.
    """

    replayed: int
    denied: tuple[str, ...]
    allowed: tuple[str, ...]
    unreadable: tuple[str, ...]
    complete: bool

    def as_json(self) -> dict[str, Any]:
        """The impact for programs."""
        return {
            "replayed": self.replayed,
            "complete": self.complete,
            "would-be-denied": list(self.denied),
            "would-be-allowed": list(self.allowed),
            "unresolvable": list(self.unreadable),
        }


def replay_under_policy(
    policy: CompiledPolicy, records: Iterable[Record], most: int = MAX_REPLAYED_RELEASES
) -> PolicyImpact:
    """Decide the history again under another policy, as far as `most` releases go."""
    again = _Again(policy)
    count = 0
    denied: list[str] = []
    allowed: list[str] = []
    unreadable: list[str] = []
    for record in records:
        event = from_bytes(record.payload)
        if not isinstance(event, ReleaseDecided):
            again.take(event)
            continue
        if count == most:
            return PolicyImpact(
                count, tuple(denied), tuple(allowed), tuple(unreadable), complete=False
            )
        count += 1
        answer = again.decide(event)
        if answer is None:
            unreadable.append(event.release)
        elif answer != event.allowed:
            (allowed if answer else denied).append(event.release)
    return PolicyImpact(count, tuple(denied), tuple(allowed), tuple(unreadable), complete=True)


class _Again:
    """The history as it would be: a log of its own, folded as any other."""

    def __init__(self, policy: CompiledPolicy) -> None:
        self._policy, self._state = policy, LedgerState()
        sources = tuple((source.name, source.text) for source in policy.sources)
        self._add(PolicyApplied("2000-01-01T00:00:00+00:00", "", "", policy.digest, sources, ()))

    def decide(self, event: ReleaseDecided) -> bool | None:
        """Whether a release would have been allowed; None if it could not have been read."""
        self._state.now = first_day_of_month(event.at)
        try:
            mechanisms = resolve_or_reject(release_from_body(event.body), self._policy)
            balances = self._state.balances
            allowed = decide(self._policy, balances, mechanisms, self._state.today).allowed
        except (ReleaseRejected, InvalidValue):
            return None
        if allowed:
            self._add(replace(event, allowed=True, answer="{}"))
        return allowed

    def take(self, event: Event) -> None:
        """What happened besides decisions, where it still has a meaning."""
        match event:
            case ReleaseImported():
                self._add(event)
            case ReleaseCommitted() | ReleaseVoided() | ReleaseExpired():
                entry = self._state.entries.get(event.release)
                if entry is not None and entry.status == RESERVED:
                    self._add(event)
            case ReleaseRelabelled():
                if event.release in self._state.entries:
                    self._add(event)

    def _add(self, event: Event) -> None:
        self._state.fold([next_record(self._state.head, event)])
