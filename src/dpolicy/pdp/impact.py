"""Impact of a candidate policy: recorded decisions that it would have changed (platforms 3.1).

The replay decides every decided release again, in order, against what the candidate would have
allowed before it. Other events stay as recorded: imported releases are charged, and reservations
end as they did.
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
from dpolicy.pdp.request_evaluation import active_policy
from dpolicy.releases.body import release_from_body
from dpolicy.rules.compiler import CompiledPolicy

#: Limit of replayed releases. A replay decides a few thousand per second.
MAX_REPLAYED_RELEASES = 20_000


@dataclass(frozen=True, slots=True)
class PolicyImpact:
    """Number of replayed releases, and ids of those whose decision would change.

    `unreadable` are the releases that the candidate's vocabulary does not cover; they count as
    denied. `complete` is False if the limit was reached.
    """

    replayed: int
    denied: tuple[str, ...]
    allowed: tuple[str, ...]
    unreadable: tuple[str, ...]
    complete: bool

    def as_json(self) -> dict[str, Any]:
        """Return the impact as JSON."""
        return {
            "replayed": self.replayed,
            "complete": self.complete,
            "would-be-denied": list(self.denied),
            "would-be-allowed": list(self.allowed),
            "unresolvable": list(self.unreadable),
        }


def replay_under_policy(
    policy: CompiledPolicy, records: Iterable[Record], limit: int = MAX_REPLAYED_RELEASES
) -> PolicyImpact:
    """Replay at most `limit` decided releases under a candidate policy."""
    replay = _Replay(policy)
    count, complete = 0, True
    denied: list[str] = []
    allowed: list[str] = []
    unreadable: list[str] = []
    for record in records:
        event = from_bytes(record.payload)
        if not isinstance(event, ReleaseDecided):
            replay.apply(event)
            continue
        if count == limit:
            complete = False
            break
        count += 1
        would_allow = replay.decide(event)
        if would_allow is None:
            unreadable.append(event.release)
        elif would_allow != event.allowed:
            (allowed if would_allow else denied).append(event.release)
    return PolicyImpact(count, tuple(denied), tuple(allowed), tuple(unreadable), complete)


class _Replay:
    """Ledger state as it would be under the candidate policy. Mutable."""

    def __init__(self, policy: CompiledPolicy) -> None:
        self._state = LedgerState()
        sources = tuple((source.name, source.text) for source in policy.sources)
        self._fold(PolicyApplied("2000-01-01T00:00:00+00:00", "", "", policy.digest, sources, ()))

    def decide(self, event: ReleaseDecided) -> bool | None:
        """Return whether the release would be allowed; None if it cannot be resolved."""
        state = self._state
        state.now = first_day_of_month(event.at)
        state.update_balances()
        enforced = active_policy(state)
        try:
            mechanisms = resolve_or_reject(release_from_body(event.body), enforced)
            allowed = decide(enforced, state.balances, mechanisms, state.today).allowed
        except (ReleaseRejected, InvalidValue):
            return None
        if allowed:
            self._fold(replace(event, allowed=True, answer="{}"))
        return allowed

    def apply(self, event: Event) -> None:
        """Fold an event that is not a decision, if its release exists under the candidate."""
        match event:
            case ReleaseImported():
                self._fold(event)
            case ReleaseCommitted() | ReleaseVoided() | ReleaseExpired():
                entry = self._state.entries.get(event.release)
                if entry is not None and entry.status == RESERVED:
                    self._fold(event)
            case ReleaseRelabelled():
                if event.release in self._state.entries:
                    self._fold(event)

    def _fold(self, event: Event) -> None:
        self._state.fold([next_record(self._state.head, event)])
