"""Journal: a store and its folded state, with one writer at a time.

Requests that wait for the write lock share the next commit. The journal folds exactly the records
that a later reader will read. If a commit fails, none of its records exist. When the state may be
half changed, the journal reads it again, from the snapshot if that is valid.
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
from dpolicy.pdp.charge_groups import Resolution
from dpolicy.pdp.ledger_state import LedgerState, first_day_of_month
from dpolicy.pdp.snapshot import read_snapshot, write_snapshot

#: A process that wrote at least this number of records saves a snapshot when it closes.
MIN_RECORDS_FOR_SNAPSHOT = 1_000
#: A running process saves one after this number of records, and at least half of all before.
SNAPSHOT_INTERVAL = 20_000

Clock = Callable[[], datetime]
Result = TypeVar("Result")


def utc_now() -> datetime:
    """Return the current time of this machine's clock."""
    return datetime.now(UTC)


@dataclass(slots=True)
class _Ticket:
    """A request that waits for the write lock, and then its result or error."""

    work: Callable[[WriteTransaction], Any]
    answer: Any = None
    error: BaseException | None = None
    done: bool = False


@dataclass(slots=True)
class WriteTransaction:
    """Access to the state and the log under the write lock.

    `append` folds each event at once, before it is durable.
    """

    state: LedgerState
    log: LogWriter
    now: datetime
    added: list[Record] = field(default_factory=list)

    @property
    def timestamp(self) -> str:
        """The time of new events, in UTC so that timestamps can be compared as text."""
        return format_timestamp(self.now)

    def append(self, event: Event, resolution: Resolution | None = None) -> int:
        """Add an event and fold it; return its record number.

        `resolution` has the resolved mechanisms of a release that was just decided. The state then
        does not resolve them again.
        """
        record = next_record(self.state.head, event)
        self.added.append(record)
        self.state.fold([record], resolution)
        return record.sequence

    def event(self, sequence: int) -> Event:
        """Return the event of a durable record, or of one that this transaction added."""
        position = sequence - self.added[0].sequence if self.added else -1
        if position >= 0:
            return from_bytes(self.added[position].payload)
        return read_event(self.log, sequence)


def read_record(log: LedgerStore | LogWriter, sequence: int) -> Record:
    """Read a record that exists."""
    return next(iter(log.records_after(sequence - 1)))


def read_event(log: LedgerStore | LogWriter, sequence: int) -> Event:
    """Read the event of a record that exists."""
    return from_bytes(read_record(log, sequence).payload)


def format_timestamp(moment: datetime) -> str:
    """Return a time in the format of the ledger."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


class Journal:
    """A store and its folded state. Safe to share between threads."""

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
            self._state = self._load_state()
            self.head = _head_of_state(self._state)

    def close(self) -> None:
        """Save a snapshot if enough was written, and close the store."""
        with self._writer:
            self._save_snapshot(MIN_RECORDS_FOR_SNAPSHOT)
        self.store.close()

    @contextmanager
    def read(self) -> Iterator[LedgerState]:
        """Give access to the current state, without updated balances. Do not change the state."""
        with self._writer, self._doubt_on_error():
            yield self._catch_up(self.store, self._clock())

    @contextmanager
    def read_with_balances(self) -> Iterator[LedgerState]:
        """Give access to the current state with updated balances. Do not change the state."""
        with self.read() as state:
            state.update_balances()
            yield state

    @contextmanager
    def _doubt_on_error(self) -> Iterator[None]:
        """Load the state again after any error that is not a `DPolicyError`."""
        try:
            yield
        except DPolicyError:
            raise
        except BaseException:
            self._doubtful = True
            raise

    def _catch_up(self, log: LedgerStore | LogWriter, now: datetime) -> LedgerState:
        """Fold the records that other processes wrote, and set the current month."""
        if self._doubtful:
            self._state, self._doubtful = self._load_state(), False
        self._doubtful = True
        self._state.fold(log.records_after(self._state.sequence))
        self._doubtful = False
        self._state.now = first_day_of_month(format_timestamp(now))
        self.head = _head_of_state(self._state)
        return self._state

    def _load_state(self) -> LedgerState:
        """Fold the ledger, from its snapshot if that is valid."""
        snapshot = self.store.load_snapshot()
        state = snapshot and read_snapshot(*snapshot, lambda n: read_record(self.store, n))
        if state:
            self._saved = state.sequence
        else:
            state = LedgerState()
        state.fold(self.store.records_after(state.sequence))
        return state

    def _save_snapshot(self, min_records: int) -> None:
        """Save a snapshot if this process wrote `min_records` since the last one."""
        if self._written >= min_records and self._state.policy is not None:
            # The records are durable, and a snapshot is only a cache: no request may fail for it.
            with suppress(DPolicyError, OSError, MemoryError):
                self._state.update_balances()
                self.store.save_snapshot(self._state.sequence, write_snapshot(self._state))
            self._saved, self._written = self._state.sequence, 0

    def write(self, work: Callable[[WriteTransaction], Result]) -> Result:
        """Run `work` under the write lock, in one commit with all other waiting requests."""
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
        """Write one commit for all tickets; if it fails, fail all of them and doubt the state."""
        try:
            with self.store.open_for_writing() as log:
                now = self._clock()
                transaction = WriteTransaction(self._catch_up(log, now), log, now)
                self._doubtful = True
                _expire_reservations(transaction)
                for ticket in batch:
                    _run_ticket(ticket, transaction)
                log.append(transaction.added)
            self._doubtful = False
            self.head = _head_of_state(transaction.state)
        except BaseException as error:
            for ticket in batch:
                ticket.error = error
                ticket.done = True
            raise
        for ticket in batch:
            ticket.done = True
        self._written += len(transaction.added)
        self._save_snapshot(max(SNAPSHOT_INTERVAL, self._saved // 2))


def _head_of_state(state: LedgerState) -> Head:
    return Head(state.head.sequence, state.head.digest) if state.head else Head()


def _run_ticket(ticket: _Ticket, transaction: WriteTransaction) -> None:
    """Run a request. A refused request must have appended nothing, or the whole batch fails."""
    before = len(transaction.added)
    try:
        ticket.answer = ticket.work(transaction)
    except DPolicyError as error:
        if len(transaction.added) != before:
            raise
        ticket.error = error


def _expire_reservations(transaction: WriteTransaction) -> None:
    """Record the expiry of reservations whose time has passed; they stay charged."""
    expired = [
        release
        for release, expires in transaction.state.open_reservations.items()
        if expires < transaction.timestamp
    ]
    for release in expired:
        transaction.append(ReleaseExpired(transaction.timestamp, release))
