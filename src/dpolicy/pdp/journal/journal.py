"""Journal: a store and its folded state, with one writer at a time and independent readers.

Requests that wait share a commit: the first of them, the leader, writes up to `MAX_BATCH` records
for them, and each request waits for its own answer only (`write_queue`). Writers and readers have
separate states, so a reader never waits for a writer and sees durable records only. Each state
folds exactly the records of the store. If a commit fails, none of its records exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from threading import Lock, Thread
from typing import NamedTuple, TypeVar

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.errors import DPolicyError, LedgerUnavailable
from dpolicy.ledger.chain_reader import Head
from dpolicy.ledger.events import ReleaseExpired
from dpolicy.ledger.store import LedgerStore
from dpolicy.pdp.journal.folded_ledger import FoldedLedger
from dpolicy.pdp.journal.write_queue import UNFINISHED, Ticket, WriteQueue
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.snapshot import write_snapshot

#: Largest number of records that requests write in a shared commit. Releases with many boxes count
#: as several records, which bounds the time of a commit.
MAX_BATCH = 256
#: A process that wrote at least this number of records saves a snapshot when it closes.
MIN_RECORDS_FOR_SNAPSHOT = 1_000
#: A running process saves one after this number of records, and at least half of those before.
SNAPSHOT_INTERVAL = 20_000

Clock = Callable[[], datetime]
Result = TypeVar("Result")


def utc_now() -> datetime:
    """Return the current time of this machine's clock."""
    return datetime.now(UTC)


class PublishedState(NamedTuple):
    """A durable record, and the policy and the day of the state after it."""

    head: Head
    enforced: EnforcedPolicy | None
    today: int


class Journal:
    """A store and its folded states. Safe to share between threads."""

    def __init__(self, store: LedgerStore, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._queue = WriteQueue()
        self._write_lock, self._read_lock = Lock(), Lock()
        self._written = 0
        self._snapshot_thread: Thread | None = None
        self._snapshot_lock, self._publish_lock = Lock(), Lock()
        #: The last record that this process knows to be durable. It is read without a lock.
        self.published = PublishedState(Head(), None, 0)
        self._reader = FoldedLedger(store)
        self._writer: FoldedLedger | None = None
        self._publish(self._reader.state)

    def now(self) -> datetime:
        """Return the time of the clock of this journal."""
        return self._clock()

    def close(self) -> None:
        """Save a snapshot if enough was written, and close the store."""
        if self._snapshot_thread is not None:
            self._snapshot_thread.join()
        with self._write_lock:
            self._save_snapshot(MIN_RECORDS_FOR_SNAPSHOT)
            self.store.close()

    @contextmanager
    def read(self) -> Iterator[LedgerState]:
        """Give access to the durable state, without updated balances. Do not change the state."""
        with self._read_lock, self._reader.doubt_on_error():
            state = self._reader.catch_up(self.store, self._clock())
            self._publish(state)
            yield state

    @contextmanager
    def read_with_balances(self) -> Iterator[LedgerState]:
        """Give access to the durable state with updated balances. Do not change the state."""
        with self.read() as state:
            state.update_balances()
            yield state

    def write(self, work: Callable[[WriteTransaction], Result], size: int = 1) -> Result:
        """Run `work` as the only writer, in one commit with other waiting requests.

        `size` is the largest number of records that `work` appends, or more for more work.
        """
        ticket, leads = Ticket(work, size), False
        try:
            try:
                leads = self._queue.join(ticket)
                if leads:
                    self._lead(ticket)
            finally:
                self._queue.leave(ticket)
        finally:  # again, in case that a signal handler raised in the first call
            self._queue.leave(ticket)
        if leads:
            self._save_snapshot_later(max(SNAPSHOT_INTERVAL, self._reader.snapshot_sequence // 2))
        answer: Result = ticket.result()
        return answer

    def _lead(self, leader: Ticket) -> None:
        """Write one commit for the waiting requests."""
        with self._write_lock:
            self._write_batch(self._queue.take_batch(leader, MAX_BATCH))

    def _write_batch(self, batch: list[Ticket]) -> None:
        """Write one commit for all tickets; if it fails, fail all of them and doubt the state."""
        try:
            writer = self._open_writer()
            with self.store.open_for_writing() as log:
                now = self._clock()
                transaction = WriteTransaction(writer.catch_up(log, now), log, now)
                writer.is_doubtful = True
                _expire_reservations(transaction)
                for ticket in batch:
                    _run_ticket(ticket, transaction)
                log.append(transaction.added)
            writer.is_doubtful = False
            for ticket in batch:
                ticket.failure = None
            self._publish(transaction.state)
            self._written += len(transaction.added)
            transaction.state.archive_if_many()
        except BaseException as error:
            _fail_all(batch, error)
            if not isinstance(error, Exception):
                raise

    def _open_writer(self) -> FoldedLedger:
        """Return the state of the writers.

        The first write, and the first after a failed commit, copy the state of the readers: both
        states then share their policies, and plans apply.
        """
        if self._writer is None or self._writer.is_doubtful:
            with self._read_lock, self._reader.doubt_on_error():
                state = self._reader.catch_up(self.store, self._clock())
                self._writer = FoldedLedger(self.store, state.copy())
        return self._writer

    def _publish(self, state: LedgerState) -> None:
        """Make a durable state known to all threads, unless a newer one is known."""
        with self._publish_lock:
            published = (self.published.head.sequence, self.published.today)
            if state.head is not None and (state.sequence, state.today) > published:
                head = Head(state.head.sequence, state.head.digest)
                self.published = PublishedState(head, state.enforced, state.today)

    def _save_snapshot_later(self, min_records: int) -> None:
        """Save a snapshot in a thread, so that no request waits for it. At most one thread does."""
        if self._written < min_records:
            return
        # Without a thread there is no snapshot, which is only a cache.
        with self._snapshot_lock, suppress(RuntimeError, MemoryError):
            if self._snapshot_thread is None or not self._snapshot_thread.is_alive():
                thread = Thread(target=self._save_snapshot, args=(min_records,))
                thread.start()
                self._snapshot_thread = thread

    def _save_snapshot(self, min_records: int) -> None:
        """Save a snapshot of the readers' state if this process wrote `min_records` since one."""
        if self._written < min_records:
            return
        self._written = 0
        # The records are durable, and a snapshot is only a cache: no request may fail for it.
        with suppress(DPolicyError, OSError, MemoryError):
            with self.read_with_balances() as state:
                if state.policy is None:
                    return
                sequence, data = state.sequence, write_snapshot(state)
                self._reader.snapshot_sequence = sequence
            self.store.save_snapshot(sequence, data)


def _run_ticket(ticket: Ticket, transaction: WriteTransaction) -> None:
    """Run a request. A refused request must have appended nothing, or the whole batch fails.

    So does the batch of an unexpected error, also without a record: the balances may be half
    changed.
    """
    before = len(transaction.added)
    try:
        ticket.answer = ticket.work(transaction)
    except Exception as error:
        ticket.error = error
        if len(transaction.added) != before or not isinstance(error, DPolicyError):
            raise


def _fail_all(batch: list[Ticket], error: BaseException) -> None:
    """Give an error to the requests of a commit that failed.

    If one of them is the cause, only that one gets the error; the others can be repeated. An
    interrupt belongs to the thread of the leader.
    """
    is_own = any(ticket.error is error for ticket in batch) or not isinstance(error, Exception)
    for ticket in batch:
        if not is_own or ticket.error is error:
            ticket.failure = error
        else:
            ticket.failure = LedgerUnavailable(UNFINISHED)


def _expire_reservations(transaction: WriteTransaction) -> None:
    """Record the expiry of reservations whose time has passed; they stay charged.

    One commit records at most `MAX_BATCH` of them. The others can no longer be ended
    (`request_evaluation.require_open_reservation`).
    """
    reservations = transaction.state.open_reservations
    for release in reservations.take_expired(transaction.timestamp, MAX_BATCH):
        transaction.append(ReleaseExpired(transaction.timestamp, release))
