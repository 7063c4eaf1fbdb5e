"""A store and its state: who may read, who writes, and what waits to be written with it.

Requests that wait while one is being written share the next commit. What is folded is what will be
read again; if writing fails nothing happened, and whenever the state may be half changed it is read
anew, from its snapshot if there is a good one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Any, TypeVar

from dpolicy.errors import DPolicyError
from dpolicy.ledger.chain import Record
from dpolicy.ledger.chain_reader import Head
from dpolicy.ledger.events import Event, ReleaseExpired, from_bytes, next_record
from dpolicy.ledger.store import LedgerStore, LogWriter
from dpolicy.pdp.ledger_state import LedgerState, first_day_of_month
from dpolicy.pdp.snapshot import read_snapshot, write_snapshot

#: A snapshot is kept at the end of a process that wrote so many records,
MIN_RECORDS_FOR_SNAPSHOT = 1_000
#: and while it runs, after so many and half as many as there were before.
SNAPSHOT_INTERVAL = 20_000

Clock = Callable[[], datetime]
Result = TypeVar("Result")


def utc_now() -> datetime:
    """The time on this machine's clock."""
    return datetime.now(UTC)


@dataclass(slots=True)
class _Ticket:
    """One request that waits to be written."""

    work: Callable[[WriteTransaction], Any]
    answer: Any = None
    error: BaseException | None = None
    done: bool = False


@dataclass(slots=True)
class WriteTransaction:
    """A state that is being written to: what is emitted is folded in at once."""

    state: LedgerState
    log: LogWriter
    now: datetime
    added: list[Record] = field(default_factory=list)

    @property
    def timestamp(self) -> str:
        """The time of an event, in UTC so that times can be compared."""
        return format_timestamp(self.now)

    def append(self, event: Event) -> int:
        """Record an event; its number."""
        record = next_record(self.state.head, event)
        self.added.append(record)
        self.state.fold([record])  # what is folded is what will be read again
        return record.sequence

    def event(self, sequence: int) -> Event:
        """An event from before, or from the same commit."""
        position = sequence - self.added[0].sequence if self.added else -1
        if position >= 0:
            return from_bytes(self.added[position].payload)
        return read_event(self.log, sequence)


def read_record(log: LedgerStore | LogWriter, sequence: int) -> Record:
    """A record that is there."""
    return next(iter(log.records_after(sequence - 1)))


def read_event(log: LedgerStore | LogWriter, sequence: int) -> Event:
    """The event of a record."""
    return from_bytes(read_record(log, sequence).payload)


def format_timestamp(moment: datetime) -> str:
    """A moment as the ledger writes it."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


class Journal:
    """The state of a ledger. Safe to share between threads."""

    def __init__(self, store: LedgerStore, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._writer = Lock()
        self._queue: list[_Ticket] = []
        self._queue_lock = Lock()
        self._saved = 0
        self._written = 0
        self._doubtful = False
        #: The last record that is known to be durable; read without a lock.
        self.head = Head()
        with self._writer:
            self._state = self._opened()
            self.head = _head(self._state)

    def close(self) -> None:
        """Let go of the ledger."""
        with self._writer:
            self._save(MIN_RECORDS_FOR_SNAPSHOT)
        self.store.close()

    @contextmanager
    def read(self) -> Iterator[LedgerState]:
        """The state as it is now, which must not be changed."""
        with self._writer, self._doubted():
            yield self._caught_up(self.store, self._clock())

    @contextmanager
    def _doubted(self) -> Iterator[None]:
        """After anything but a refusal the state may be half changed, and is read anew."""
        try:
            yield
        except DPolicyError:
            raise
        except BaseException:
            self._doubtful = True
            raise

    def _caught_up(self, log: LedgerStore | LogWriter, now: datetime) -> LedgerState:
        """The state with all that was written since, looked at now."""
        if self._doubtful:
            self._state, self._doubtful = self._opened(), False
        self._doubtful = True
        self._state.fold(log.records_after(self._state.sequence))
        self._doubtful = False
        self._state.now = first_day_of_month(format_timestamp(now))
        self.head = _head(self._state)
        return self._state

    def _opened(self) -> LedgerState:
        """The state of the ledger, from its snapshot if there is a good one."""
        found = self.store.load_snapshot()
        state = found and read_snapshot(*found, lambda n: read_record(self.store, n))
        if state:
            self._saved = state.sequence
        else:
            state = LedgerState()
        state.fold(self.store.records_after(state.sequence))
        return state

    def _save(self, at_least: int) -> None:
        """Keep a snapshot if this process has written much since the last one."""
        if self._written >= at_least and self._state.policy is not None:
            # What was written is safe and the cache only a cache: no answer may fail for it.
            with suppress(DPolicyError, OSError, MemoryError):
                self.store.save_snapshot(self._state.sequence, write_snapshot(self._state))
            self._saved, self._written = self._state.sequence, 0

    def write(self, work: Callable[[WriteTransaction], Result]) -> Result:
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
        answer: Result = ticket.answer
        return answer

    def _write_batch(self, batch: list[_Ticket]) -> None:
        """One commit for all; if it fails, none of them happened and the state is read anew."""
        try:
            with self.store.open_for_writing() as log:
                now = self._clock()
                writing = WriteTransaction(self._caught_up(log, now), log, now)
                self._doubtful = True
                _expire(writing)
                for ticket in batch:
                    _do(ticket, writing)
                log.append(writing.added)
            self._doubtful = False
            self.head = _head(writing.state)
        except BaseException as error:
            for ticket in batch:
                ticket.error = error
                ticket.done = True
            raise
        for ticket in batch:
            ticket.done = True
        self._written += len(writing.added)
        self._save(max(SNAPSHOT_INTERVAL, self._saved // 2))


def _head(state: LedgerState) -> Head:
    return Head(state.head.sequence, state.head.digest) if state.head else Head()


def _do(ticket: _Ticket, writing: WriteTransaction) -> None:
    """Work that is refused writes nothing; what others in the batch do is not touched."""
    before = len(writing.added)
    try:
        ticket.answer = ticket.work(writing)
    except DPolicyError as error:
        if len(writing.added) != before:
            raise
        ticket.error = error


def _expire(writing: WriteTransaction) -> None:
    """Reservations whose time has passed stay spent; the log says so."""
    passed = [
        r for r, expires in writing.state.open_reservations.items() if expires < writing.timestamp
    ]
    for release in passed:
        writing.append(ReleaseExpired(writing.timestamp, release))
