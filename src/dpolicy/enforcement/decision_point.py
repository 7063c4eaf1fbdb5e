"""The shell around `decide`: take the lock, catch up, decide, append, commit, and only then answer.

A repeated id returns the recorded answer for ever; the same id with another body is an error. No
"allowed" leaves before its event is durable, and if writing fails nothing was allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from dpolicy.enforcement.governance import Balance, balances, conflicts
from dpolicy.enforcement.journal import Answer, Clock, Journal, Writing, event_at, stamp, utc_now
from dpolicy.enforcement.judgement import (
    check_less,
    judge,
    losses_of,
    read_request,
    readable,
    replayed,
    reservation,
)
from dpolicy.enforcement.places import space_of
from dpolicy.enforcement.state import COUNTED, Entry, State
from dpolicy.errors import Conflicting, InvariantBroken, Misused
from dpolicy.ledger.canonical import encode
from dpolicy.ledger.events import (
    Event,
    PolicyApplied,
    Record,
    ReleaseCommitted,
    ReleaseDecided,
    ReleaseImported,
    ReleaseRelabelled,
    ReleaseVoided,
    body_of,
)
from dpolicy.ledger.opening import open_store
from dpolicy.ledger.reading import Head
from dpolicy.ledger.store import Store
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.request import Release
from dpolicy.rules.compiler import CompiledPolicy, load_policy

#: A reservation that nobody ends within this counts as spent for good.
RESERVATION = timedelta(hours=24)


class DecisionPoint:
    """Decides releases against a policy and a ledger. Safe to share between threads."""

    def __init__(self, ledger: str | Path | Store, clock: Clock = utc_now) -> None:
        store = open_store(str(ledger)) if isinstance(ledger, str | Path) else ledger
        self._journal = Journal(store, clock)

    def close(self) -> None:
        """Let go of the ledger."""
        self._journal.close()

    # What analysts call

    def submit(self, release: Release | Body, by: str = "") -> Decision:
        """Decide a release and charge it, or return what was decided for this id before."""
        asked = read_request(release)
        return self._journal.write(lambda log: self._decide(log, asked, by, reserve=False))

    def reserve(self, release: Release | Body, by: str = "") -> Decision:
        """Decide a release and hold its cost until it is committed or voided."""
        asked = read_request(release)
        return self._journal.write(lambda log: self._decide(log, asked, by, reserve=True))

    def check(self, release: Release | Body) -> Decision:
        """What `submit` would answer now; nothing is written."""
        asked = read_request(release)
        with self._journal.reading() as state:
            known = state.entries.get(asked.id)
            if known is None:
                return judge(state, asked)
            return replayed(event_at(self._journal.store, known.asked), known.status, asked)

    def submit_together(
        self, choose: Callable[[State], Sequence[Release]], by: str = ""
    ) -> tuple[Decision, ...]:
        """Submit what is chosen from the state, in one commit: all of it is allowed, or none."""
        return self._journal.write(lambda log: self._decide_together(log, choose(log.state), by))

    def consult(self, look: Callable[[State], Answer]) -> Answer:
        """What somebody reads off the state, which must not change it."""
        with self._journal.reading() as state:
            return look(state)

    def commit(self, release: str, used: Release | Body | None = None, by: str = "") -> int:
        """End a reservation that was used, wholly or in part; the number of its event."""
        body = None if used is None else read_request(used).body
        return self._journal.write(lambda log: self._commit(log, release, body, by))

    def void(self, release: str, because: str, by: str = "") -> int:
        """End a reservation of which somebody attests that nothing was computed from data."""
        return self._journal.write(lambda log: self._void(log, release, because, by))

    # What officers call

    def apply(
        self,
        policy: CompiledPolicy | str | Path,
        accept: Sequence[str] = (),
        by: str = "",
        because: str = "",
    ) -> int:
        """Put a policy in force. Raises `Conflicting` unless every conflict is accepted by name."""
        compiled = policy if isinstance(policy, CompiledPolicy) else load_policy(policy)
        return self._journal.write(
            lambda log: self._apply(log, compiled, tuple(accept), by, because)
        )

    def import_past(self, release: Release | Body, because: str = "", by: str = "") -> int:
        """Charge a release that has already happened, whatever the budgets say."""
        asked = read_request(release)
        return self._journal.write(lambda log: self._import(log, asked, because, by))

    def relabel(self, release: Release | Body, because: str, by: str = "") -> int:
        """Describe a recorded release anew; its mechanisms must stay the same."""
        asked = read_request(release)
        return self._journal.write(lambda log: self._relabel(log, asked, because, by))

    def budgets(self, at: Mapping[str, str] | None = None) -> list[Balance]:
        """What was spent and is left, for every rule over all releases: at its worst place, or
        at the worst of those named, such as `{"country": "CH", "time": "2026-10"}`.
        """
        with self._journal.reading() as state:
            place = space_of(state.policy).at(at) if at and state.policy else None
            return balances(state, place)

    def conflicts(self, policy: CompiledPolicy) -> list[Balance]:
        """The rules of another policy that the past has already broken."""
        with self._journal.reading() as state:
            return conflicts(state.under(policy))

    # What is looked up

    @property
    def position(self) -> Head:
        """The last record that this process knows to be durable; asked without waiting."""
        return self._journal.head

    def records(self, behind: int = 0) -> Iterator[Record]:
        """The durable records behind a number, in order."""
        return self._journal.store.after(behind)

    def recorded(self, release: str) -> tuple[Entry, Event]:
        """How a release stands, and the event in which it was asked for."""
        with self._journal.reading() as state:
            entry = state.entries.get(release)
        if entry is None:
            raise Misused(f"there is no release `{release}`", "not-found")
        return entry, event_at(self._journal.store, entry.asked)

    @property
    def policy(self) -> CompiledPolicy | None:
        """The policy in force."""
        with self._journal.reading() as state:
            return state.policy

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Every release by its id."""
        with self._journal.reading() as state:
            return dict(state.entries)

    # What is done under the lock

    def _decide(self, log: Writing, release: Release, by: str, *, reserve: bool) -> Decision:
        known = log.state.entries.get(release.id)
        if known is not None:
            return replayed(log.event(known.asked), known.status, release)
        decision = judge(log.state, release).placed(log.state.sequence + 1)
        expires = stamp(log.now + RESERVATION) if reserve else None
        log.emit(
            ReleaseDecided(
                at=log.at,
                by=by or release.by,
                release=release.id,
                body=release.body,
                allowed=decision.allowed,
                reserved=reserve and decision.allowed,
                expires=expires if decision.allowed else None,
                answer=json.dumps(decision.as_json(), ensure_ascii=False, sort_keys=True),
            )
        )
        return decision

    def _decide_together(
        self, log: Writing, releases: Sequence[Release], by: str
    ) -> tuple[Decision, ...]:
        decisions = tuple(self._decide(log, release, by, reserve=False) for release in releases)
        denied = [d.release for d in decisions if not (d.allowed or d.replayed)]
        if denied:
            raise InvariantBroken(f"`{denied[0]}` was chosen and does not fit")
        return decisions

    def _commit(self, log: Writing, release: str, body: Body | None, by: str) -> int:
        entry = reservation(log.state, release)
        if body is not None:
            if body["release"] != release:
                raise Misused(f"what was run is called `{body['release']}`, not `{release}`")
            check_less(log.state, entry, body)
        return log.emit(ReleaseCommitted(log.at, by, release, body))

    def _void(self, log: Writing, release: str, because: str, by: str) -> int:
        if not because.strip():
            raise Misused(
                "say `because`: that nothing was computed must be attested", "because-missing"
            )
        reservation(log.state, release)
        return log.emit(ReleaseVoided(log.at, by, release, because))

    def _apply(
        self, log: Writing, policy: CompiledPolicy, accept: tuple[str, ...], by: str, because: str
    ) -> int:
        found = conflicts(log.state.under(policy))
        left = [c for c in found if c.rule.name not in accept]
        if left:
            raise Conflicting(left)
        sources = tuple((source.name, source.text) for source in policy.sources)
        accepted = tuple(c.rule.name for c in found)
        return log.emit(PolicyApplied(log.at, by, because, policy.digest, sources, accepted))

    def _import(self, log: Writing, release: Release, because: str, by: str) -> int:
        known = log.state.entries.get(release.id)
        if known is not None:
            if encode(body_of(log.event(known.asked))) != encode(release.body):
                raise Misused(f"the id `{release.id}` is taken by another release", "id-taken")
            if known.status not in COUNTED:
                raise Misused(f"`{release.id}` was {known.status}; import it under another id")
            return known.asked
        if log.state.policy is not None:
            readable(release, log.state.policy)
        return log.emit(
            ReleaseImported(log.at, by or release.by, because, release.id, release.body)
        )

    def _relabel(self, log: Writing, release: Release, because: str, by: str) -> int:
        entry = log.state.entries.get(release.id)
        if entry is None:
            raise Misused(f"there is no release `{release.id}`")
        if not because.strip():
            raise Misused("say `because`: relabelling changes what is charged")
        charged = body_of(log.event(entry.charged))
        if encode(losses_of(charged)) != encode(losses_of(release.body)):
            raise Misused(
                "relabelling keeps the mechanisms: only attributes, labels and names change"
            )
        if log.state.policy is not None:
            readable(release, log.state.policy)
        return log.emit(ReleaseRelabelled(log.at, by, because, release.id, release.body))
