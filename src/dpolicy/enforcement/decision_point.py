"""The shell around `decide`: take the lock, catch up, decide, append, commit, and only then answer.

Requests that wait while one is being written share the next commit. A repeated id returns the
recorded answer for ever; the same id with another body is an error. No "allowed" leaves before its
event is durable, and if writing fails nothing was allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from dpolicy.enforcement.governance import Balance, balances, conflicts
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
from dpolicy.enforcement.snapshot import from_snapshot, to_snapshot
from dpolicy.enforcement.state import COUNTED, Entry, State
from dpolicy.errors import Conflicting, DPolicyError, Misused
from dpolicy.ledger.canonical import encode
from dpolicy.ledger.events import (
    Event,
    PolicyApplied,
    Record,
    ReleaseCommitted,
    ReleaseDecided,
    ReleaseExpired,
    ReleaseImported,
    ReleaseRelabelled,
    ReleaseVoided,
    body_of,
    from_bytes,
    record_after,
)
from dpolicy.ledger.opening import open_store
from dpolicy.ledger.store import Log, Store
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.request import Release
from dpolicy.rules.compiler import CompiledPolicy, load_policy

#: A reservation that nobody ends within this counts as spent for good.
RESERVATION = timedelta(hours=24)

#: A snapshot is kept at the end of a process that wrote so many records,
WORTH_SAVING = 1_000
#: and while it runs, after so many and half as many as there were before.
SAVE_EVERY = 20_000

Clock = Callable[[], datetime]
Answer = TypeVar("Answer")


def utc_now() -> datetime:
    """The time on this machine's clock."""
    return datetime.now(UTC)


@dataclass(slots=True)
class _Ticket:
    """One request that waits to be written."""

    work: Callable[[_Writing], Any]
    answer: Any = None
    error: BaseException | None = None
    done: bool = False


@dataclass(slots=True)
class _Writing:
    """A state that is being written to: what is emitted is folded in at once."""

    state: State
    log: Log
    now: datetime
    added: list[Record] = field(default_factory=list)

    @property
    def at(self) -> str:
        """The time of an event, in UTC so that times can be compared."""
        return stamp(self.now)

    def emit(self, event: Event) -> int:
        """Record an event; its number."""
        record = record_after(self.state.head, event)
        self.added.append(record)
        self.state.follow([record])  # what is folded is what will be read again
        return record.sequence

    def event(self, sequence: int) -> Event:
        """An event from before, or from the same commit."""
        position = sequence - self.added[0].sequence if self.added else -1
        if position >= 0:
            return from_bytes(self.added[position].payload)
        return event_at(self.log, sequence)


def record_at(log: Store | Log, sequence: int) -> Record:
    """A record that is there."""
    return next(iter(log.after(sequence - 1)))


def event_at(log: Store | Log, sequence: int) -> Event:
    """The event of a record."""
    return from_bytes(record_at(log, sequence).payload)


def stamp(moment: datetime) -> str:
    """A moment as the ledger writes it."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


class DecisionPoint:
    """Decides releases against a policy and a ledger. Safe to share between threads."""

    def __init__(self, ledger: str | Path | Store, clock: Clock = utc_now) -> None:
        self._store = open_store(str(ledger)) if isinstance(ledger, str | Path) else ledger
        self._clock = clock
        self._state = State()
        self._writer = Lock()
        self._queue: list[_Ticket] = []
        self._queue_lock = Lock()
        self._saved = 0
        self._written = 0
        with self._writer:
            self._state = self._opened()

    def close(self) -> None:
        """Let go of the ledger."""
        with self._writer:
            self._save(WORTH_SAVING)
        self._store.close()

    # What analysts call

    def submit(self, release: Release | Body, by: str = "") -> Decision:
        """Decide a release and charge it, or return what was decided for this id before."""
        asked = read_request(release)
        return self._write(lambda log: self._decide(log, asked, by, reserve=False))

    def reserve(self, release: Release | Body, by: str = "") -> Decision:
        """Decide a release and hold its cost until it is committed or voided."""
        asked = read_request(release)
        return self._write(lambda log: self._decide(log, asked, by, reserve=True))

    def check(self, release: Release | Body) -> Decision:
        """What `submit` would answer now; nothing is written."""
        asked = read_request(release)
        with self._reading() as state:
            known = state.entries.get(asked.id)
            if known is None:
                return judge(state, asked)
            return replayed(event_at(self._store, known.asked), known.status, asked)

    def commit(self, release: str, used: Release | Body | None = None, by: str = "") -> int:
        """End a reservation that was used, wholly or in part; the number of its event."""
        body = None if used is None else read_request(used).body
        return self._write(lambda log: self._commit(log, release, body, by))

    def void(self, release: str, because: str, by: str = "") -> int:
        """End a reservation of which somebody attests that nothing was computed from data."""
        return self._write(lambda log: self._void(log, release, because, by))

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
        return self._write(lambda log: self._apply(log, compiled, tuple(accept), by, because))

    def import_past(self, release: Release | Body, because: str = "", by: str = "") -> int:
        """Charge a release that has already happened, whatever the budgets say."""
        asked = read_request(release)
        return self._write(lambda log: self._import(log, asked, because, by))

    def relabel(self, release: Release | Body, because: str, by: str = "") -> int:
        """Describe a recorded release anew; its mechanisms must stay the same."""
        asked = read_request(release)
        return self._write(lambda log: self._relabel(log, asked, because, by))

    def budgets(self, at: Mapping[str, str] | None = None) -> list[Balance]:
        """What was spent and is left, for every rule over all releases: at its worst place, or
        at the worst of those named, such as `{"country": "CH", "time": "2026-10"}`.
        """
        with self._reading() as state:
            place = space_of(state.policy).at(at) if at and state.policy else None
            return balances(state, place)

    def conflicts(self, policy: CompiledPolicy) -> list[Balance]:
        """The rules of another policy that the past has already broken."""
        with self._reading() as state:
            return conflicts(state.under(policy))

    @property
    def policy(self) -> CompiledPolicy | None:
        """The policy in force."""
        with self._reading() as state:
            return state.policy

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Every release by its id."""
        with self._reading() as state:
            return dict(state.entries)

    # The shell

    @contextmanager
    def _reading(self) -> Iterator[State]:
        with self._writer:
            self._state.follow(self._store.after(self._state.sequence))
            yield self._state

    def _opened(self) -> State:
        """The state of the ledger, from its snapshot if there is a good one."""
        found = self._store.load_snapshot()
        state = found and from_snapshot(*found, lambda n: record_at(self._store, n))
        if state:
            self._saved = state.sequence
        else:
            state = State()
        state.follow(self._store.after(state.sequence))
        return state

    def _save(self, at_least: int) -> None:
        """Keep a snapshot if this process has written much since the last one."""
        if self._written >= at_least and self._state.policy is not None:
            with suppress(DPolicyError):  # what was written is safe, and the cache only a cache
                self._store.save_snapshot(self._state.sequence, to_snapshot(self._state))
            self._saved, self._written = self._state.sequence, 0

    def _write(self, work: Callable[[_Writing], Answer]) -> Answer:
        """Do work under the write lock, together with whatever else waits for it."""
        ticket = _Ticket(work)
        with self._queue_lock:
            self._queue.append(ticket)
        with self._writer:
            if not ticket.done:
                with self._queue_lock:
                    batch, self._queue = self._queue, []
                self._write_batch(batch)
        if ticket.error is not None:
            raise ticket.error
        answer: Answer = ticket.answer
        return answer

    def _write_batch(self, batch: list[_Ticket]) -> None:
        """One commit for all; if it fails, none of them happened and the state is read anew."""
        try:
            with self._store.writing() as log:
                self._state.follow(log.after(self._state.sequence))
                writing = _Writing(self._state, log, self._clock())
                _expire(writing)
                for ticket in batch:
                    _do(ticket, writing)
                log.append(writing.added)
        except BaseException as error:
            self._state = State()  # read anew by the next request
            for ticket in batch:
                ticket.error = error
                ticket.done = True
            raise
        for ticket in batch:
            ticket.done = True
        self._written += len(writing.added)
        self._save(max(SAVE_EVERY, self._saved // 2))

    # What is done under the lock

    def _decide(self, log: _Writing, release: Release, by: str, *, reserve: bool) -> Decision:
        known = log.state.entries.get(release.id)
        if known is not None:
            return replayed(log.event(known.asked), known.status, release)
        log.state.pass_time(log.at)
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

    def _commit(self, log: _Writing, release: str, body: Body | None, by: str) -> int:
        entry = reservation(log.state, release)
        if body is not None:
            if body["release"] != release:
                raise Misused(f"what was run is called `{body['release']}`, not `{release}`")
            check_less(log.state, entry, body)
        return log.emit(ReleaseCommitted(log.at, by, release, body))

    def _void(self, log: _Writing, release: str, because: str, by: str) -> int:
        if not because.strip():
            raise Misused("say `because`: that nothing was computed must be attested")
        reservation(log.state, release)
        return log.emit(ReleaseVoided(log.at, by, release, because))

    def _apply(
        self, log: _Writing, policy: CompiledPolicy, accept: tuple[str, ...], by: str, because: str
    ) -> int:
        found = conflicts(log.state.under(policy))
        left = [c for c in found if c.rule.name not in accept]
        if left:
            raise Conflicting(left)
        sources = tuple((source.name, source.text) for source in policy.sources)
        accepted = tuple(c.rule.name for c in found)
        return log.emit(PolicyApplied(log.at, by, because, policy.digest, sources, accepted))

    def _import(self, log: _Writing, release: Release, because: str, by: str) -> int:
        known = log.state.entries.get(release.id)
        if known is not None:
            if encode(body_of(log.event(known.asked))) != encode(release.body):
                raise Misused(f"the id `{release.id}` is taken by another release")
            if known.status not in COUNTED:
                raise Misused(f"`{release.id}` was {known.status}; import it under another id")
            return known.asked
        if log.state.policy is not None:
            readable(release, log.state.policy)
        return log.emit(
            ReleaseImported(log.at, by or release.by, because, release.id, release.body)
        )

    def _relabel(self, log: _Writing, release: Release, because: str, by: str) -> int:
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


def _do(ticket: _Ticket, writing: _Writing) -> None:
    """Work that is refused writes nothing; what others in the batch do is not touched."""
    before = len(writing.added)
    try:
        ticket.answer = ticket.work(writing)
    except Exception as error:
        if len(writing.added) != before:
            raise
        ticket.error = error


def _expire(writing: _Writing) -> None:
    """Reservations whose time has passed stay spent; the log says so."""
    passed = [r for r, expires in writing.state.open.items() if expires < writing.at]
    for release in passed:
        writing.emit(ReleaseExpired(writing.at, release))
