"""Impact of a candidate policy: recorded decisions that it would have changed (platforms 3.1).

The replay decides every decided release again, in order, against what the candidate would have
allowed before it. A release keeps the unit and the relation of its record; labels that it left out
get the defaults of the candidate, as if it were submitted now. Other events stay as recorded:
imported releases are charged, and reservations end as they did.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from dpolicy.decisions.completion import complete_meaning
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
from dpolicy.ledger.timestamps import first_day_of_month
from dpolicy.pdp.request_evaluation import active_policy
from dpolicy.pdp.state.charge_groups import NO_MEANING, PENDING_MEANINGS
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.release_archive import RESERVED
from dpolicy.releases.body import Body, release_from_body
from dpolicy.releases.meaning import meaning_from_text, meaning_to_text
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
    replay, recorded = _Replay(policy), LedgerState()
    count, complete = 0, True
    denied: list[str] = []
    allowed: list[str] = []
    unreadable: list[str] = []
    for record in records:
        recorded.fold([record])
        event = _with_meaning(from_bytes(record.payload), recorded)
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
        start = "2000-01-01T00:00:00+00:00"
        number = policy.accounting.defaults.number
        self._fold(PolicyApplied(start, "", "", policy.digest, sources, (), number))

    def decide(self, event: ReleaseDecided) -> bool | None:
        """Return whether the release would be allowed; None if it cannot be resolved."""
        state = self._state
        state.now = first_day_of_month(event.at)
        state.update_balances()
        enforced = active_policy(state)
        try:
            release = release_from_body(_with_stated_units(event.body, event.meaning))
            mechanisms = resolve_or_reject(release, enforced)
            allowed = decide(enforced, state.balances, mechanisms, state.today).allowed
        except (ReleaseRejected, InvalidValue):
            return None
        if allowed:
            meaning = meaning_to_text(complete_meaning(release, enforced.policy))
            self._fold(replace(event, allowed=True, answer="{}", meaning=meaning))
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


def _with_meaning(event: Event, recorded: LedgerState) -> Event:
    """Return an event with the meaning of its release, which a record of format 1 does not have."""
    match event:
        case ReleaseDecided() | ReleaseImported() | ReleaseRelabelled():
            pass
        case ReleaseCommitted(body=body) if body is not None:
            pass
        case _:
            return event
    entry = recorded.entry(event.release)
    meaning = recorded.charge_groups[entry.charge_group].meaning
    return replace(event, meaning=NO_MEANING if meaning in PENDING_MEANINGS else meaning)


def _with_stated_units(body: Body, meaning: str | None) -> Body:
    """Return a release body whose mechanisms state their recorded unit and relation."""
    if meaning is None or meaning in PENDING_MEANINGS:
        return body
    mechanisms = [
        {**fields, "unit": own.unit, "relation": str(own.relation)}
        for fields, own in zip(
            body["mechanisms"], meaning_from_text(meaning).mechanisms, strict=True
        )
    ]
    return {**body, "mechanisms": mechanisms}
