"""The queue of waiting requests and the readers beside it: wake-ups, interrupts and durability."""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from tests.pdp.builders import pure, started

from dpolicy.errors import LedgerUnavailable, OperationRejected
from dpolicy.ledger.store import LogWriter
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.commands import decide_release
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.journal import journal
from dpolicy.pdp.journal.write_queue import Ticket, WriteQueue
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.releases.decision import Decision

#: Seconds after which a waiting thread counts as lost.
PATIENCE = 20


class SlowCommit(MemoryStore):
    """A store that holds back a commit, after the requests have run, until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.free, self.reached = threading.Event(), threading.Event()
        self.free.set()
        self.commits = 0

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        with super().open_for_writing() as log:
            yield log
            self.commits += 1
            self.reached.set()
            assert self.free.wait(3 * PATIENCE)


def in_daemons(work: Callable[[int], Any], count: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    return threads


def lost_threads(patience: float = PATIENCE) -> int:
    """Submit from many threads while a commit is held back; return how many get no answer."""
    store = SlowCommit()
    point = started(store=store)
    store.free.clear()
    store.reached.clear()
    threads = in_daemons(lambda n: point.submit(pure(f"r{n}", "0.001")), 1)
    assert store.reached.wait(PATIENCE)
    threads += in_daemons(lambda n: point.submit(pure(f"s{n}", "0.001")), 30)
    while len(point._journal._queue) < 30:
        threading.Event().wait(0.001)
    store.free.set()
    for thread in threads:
        thread.join(patience)
        if thread.is_alive():
            return sum(other.is_alive() for other in threads)
    return 0


def test_every_waiting_request_is_woken() -> None:
    assert lost_threads() == 0


def test_a_lost_wake_up_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary: the leader wakes the next leader, but not the requests that it wrote for."""

    def pass_lead_only(self: WriteQueue, leader: Ticket) -> None:
        with self._lock:
            if self._leader is leader:
                self._leader = self._waiting[0] if self._waiting else None
                if self._leader is not None:
                    self._leader.wake()

    monkeypatch.setattr(WriteQueue, "leave", pass_lead_only)
    assert lost_threads(patience=0.5) > 0


def test_a_commit_holds_at_most_256_requests() -> None:
    store = SlowCommit()
    point = started(store=store)
    before = store.commits
    decisions = point.submit_many([pure(f"r{n}", "0.001") for n in range(600)])
    assert decisions.allowed_count == 600
    assert store.commits - before == 3
    assert journal.MAX_BATCH == 256


def read_before_commit(point: DecisionPoint, store: SlowCommit) -> tuple[bool, float]:
    """Return what a reader sees of a request whose commit is held back: its entry and its cost."""
    store.free.clear()
    store.reached.clear()
    (thread,) = in_daemons(lambda _: point.submit(pure("late", "1")), 1)
    assert store.reached.wait(PATIENCE)
    (status,) = point.budgets()
    result = "late" in point.entries, status.spent["epsilon"] or 0.0
    assert point.check(pure("other", "0.1")).allowed, "readers do not wait for the commit"
    assert point.head.sequence == 2
    store.free.set()
    thread.join(PATIENCE)
    return result


def test_a_reader_sees_durable_records_only() -> None:
    store = SlowCommit()
    point = started(store=store)
    point.submit(pure("early", "0.5"))
    assert read_before_commit(point, store) == (False, 0.5)
    (status,) = point.budgets()
    assert ("late" in point.entries, status.spent["epsilon"]) == (True, 1.5)


def test_a_reader_of_the_writers_state_is_detected() -> None:
    """Canary: readers and writers share one state."""
    store = SlowCommit()
    point = started(store=store)
    point.submit(pure("early", "0.5"))
    writer = point._journal._writer
    assert writer is not None
    point._journal._reader = writer
    writer.is_doubtful = False
    point._journal._reader.catch_up = lambda *_: writer.state  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        assert read_before_commit(point, store) == (False, 0.5)
    store.free.set()


def test_an_interrupted_request_leaves_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = WriteQueue()
    leader, waiter, last = (Ticket(lambda _: None) for _ in range(3))
    assert queue.join(leader)

    def interrupt(self: Ticket) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ticket, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            queue.join(waiter)
    queue.leave(waiter)
    assert queue.take_batch(leader, 256) == [leader]
    queue.leave(leader)
    assert queue.join(last), "the next request leads"


def test_an_interrupted_leader_passes_the_lead() -> None:
    queue = WriteQueue()
    leader, waiter = Ticket(lambda _: None), Ticket(lambda _: None)
    assert queue.join(leader)
    (thread,) = in_daemons(lambda _: queue.join(waiter), 1)
    while len(queue) < 2:
        threading.Event().wait(0.001)
    queue.leave(leader)  # it took no batch
    thread.join(PATIENCE)
    assert queue._leader is waiter
    assert queue.take_batch(waiter, 256) == [waiter]


class Interrupter:
    """Raises `KeyboardInterrupt` once, when the n-th function of queue or journal is entered.

    Python runs signal handlers there.
    """

    def __init__(self, call: int) -> None:
        self.left = call

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        if frame.f_code.co_filename.endswith(("write_queue.py", "journal/journal.py")):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def is_interrupted_at(call: int) -> bool:
    """Interrupt a submission; return whether it was. A later one must be decided in time."""
    point = started()
    point.submit(pure("first", "0.001"))
    sys.settrace(Interrupter(call))
    try:
        point.submit(pure("interrupted", "0.001"))
        is_interrupted = False
    except KeyboardInterrupt:
        is_interrupted = True
    finally:
        sys.settrace(None)
    (thread,) = in_daemons(lambda _: point.submit(pure("later", "0.001")), 1)
    thread.join(PATIENCE)
    assert not thread.is_alive(), f"no answer after an interrupt at call {call}"
    return is_interrupted


def test_an_interrupt_stops_no_later_request() -> None:
    interrupted = [is_interrupted_at(call) for call in range(1, 40)]
    count = sum(interrupted)
    assert count >= 8
    assert interrupted == [True] * count + [False] * (len(interrupted) - count)


def test_a_lead_that_an_interrupt_keeps_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary: the leader leaves the queue only if nothing raises."""
    leave = WriteQueue.leave

    def leave_unless_raising(queue: WriteQueue, ticket: Ticket) -> None:
        if sys.exc_info()[0] is None:
            leave(queue, ticket)

    monkeypatch.setattr(WriteQueue, "leave", leave_unless_raising)
    monkeypatch.setattr(f"{__name__}.PATIENCE", 0.5)
    with pytest.raises(AssertionError, match="no answer after an interrupt"):
        for call in range(1, 40):
            is_interrupted_at(call)


class TwoCommits(MemoryStore):
    """A store that holds back two commits, and then fails the second."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False
        self.reached = [threading.Event(), threading.Event()]
        self.free = [threading.Event(), threading.Event()]

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        with super().open_for_writing() as log:
            yield log
            number = sum(event.is_set() for event in self.reached)
            if self.is_armed and number < 2:
                self.reached[number].set()
                assert self.free[number].wait(PATIENCE)
                if number == 1:
                    raise LedgerUnavailable("the disk is full")


class LineInterrupter:
    """Raises `KeyboardInterrupt` once, at the n-th line of the queue that a thread runs.

    Lines of `with` do not count: their second event precedes the release of a lock, where Python
    runs no signal handler.
    """

    def __init__(self, line: int) -> None:
        self.left, self.place, self.thread = line, "", 0

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        is_traced = frame.f_code.co_filename.endswith("journal/write_queue.py")
        return self.count if is_traced else None

    def count(self, frame: Any, event: str, _: Any) -> Any:
        source = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not source.lstrip().startswith("with "):
            self.left -= 1
            if self.left == 0:
                self.place = f"{frame.f_code.co_name}, line {frame.f_lineno}"
                raise KeyboardInterrupt
        return self.count


def interrupt_beside_waiters(line: int) -> str:
    """Interrupt a leader while four requests wait, and fail the commit of the next leader.

    The leader then leaves the queue again only after the next leader has reached its commit. Return
    where it was interrupted; empty if it was not. No answer may precede its record.
    """
    store = TwoCommits()
    point = started(store=store)
    store.is_armed = True
    interrupter = LineInterrupter(line)
    answers: dict[str, object] = {}
    queue = point._journal._queue
    leave = queue.leave

    def leave_late(ticket: Ticket) -> None:
        has_passed = queue._leader not in (ticket, None) and not ticket.is_done
        if has_passed and threading.get_ident() == interrupter.thread:
            store.reached[1].wait(1)  # not reached if the next leader sleeps
        leave(ticket)

    queue.leave = leave_late  # type: ignore[method-assign]

    def submit(release: str) -> None:
        try:
            answers[release] = point.submit(pure(release, "0.001"))
        except (LedgerUnavailable, KeyboardInterrupt) as error:
            answers[release] = error

    def lead(_: int) -> None:
        interrupter.thread = threading.get_ident()
        sys.settrace(interrupter)
        try:
            submit("leader")
        finally:
            sys.settrace(None)

    (leader,) = in_daemons(lead, 1)
    while leader.is_alive() and not store.reached[0].is_set():
        store.reached[0].wait(0.005)
    waiters = in_daemons(lambda n: submit(f"w{n}"), 4)
    while leader.is_alive() and not interrupter.place and len(queue) < 4:
        threading.Event().wait(0.001)
    store.free[0].set()
    leader.join(PATIENCE)
    early = dict(answers)
    store.free[1].set()
    for thread in (leader, *waiters):
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"no answer after an interrupt at {interrupter.place}"
    durable = set(point.entries)
    wrong = {
        release: answer
        for release, answer in {**early, **answers}.items()
        if (isinstance(answer, Decision) and release not in durable)
        or (isinstance(answer, KeyboardInterrupt) and release != "leader")
    }
    assert not wrong, f"after an interrupt at {interrupter.place}: {wrong}"
    (later,) = in_daemons(lambda _: submit("later"), 1)
    later.join(PATIENCE)
    assert isinstance(answers["later"], Decision)
    return interrupter.place


def interrupt_all_lines() -> set[str]:
    """Interrupt a leader at every line of the queue; return the functions that were interrupted."""
    functions, line = set[str](), 1
    while True:
        place = interrupt_beside_waiters(line)
        if not place:
            return functions
        functions.add(place.partition(",")[0])
        line += 1


def test_an_interrupt_at_any_line_gives_no_answer_before_its_commit() -> None:
    assert interrupt_all_lines() >= {"join", "take_batch", "leave", "wake", "result"}


def test_a_second_leave_that_wakes_the_next_batch_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Canary: the batch belongs to the queue, and answers count before their commit."""
    batch: list[Ticket] = []
    take_batch, run_ticket = WriteQueue.take_batch, journal._run_ticket

    def take(self: WriteQueue, leader: Ticket, limit: int) -> list[Ticket]:
        batch[:] = take_batch(self, leader, limit)
        leader.batch = batch
        return list(batch)

    def run(ticket: Ticket, transaction: WriteTransaction) -> None:
        run_ticket(ticket, transaction)
        ticket.failure = None

    monkeypatch.setattr(WriteQueue, "take_batch", take)
    monkeypatch.setattr(journal, "_run_ticket", run)
    with pytest.raises(AssertionError, match="after an interrupt at leave"):
        interrupt_all_lines()


def test_a_request_that_fails_half_way_fails_alone_with_its_error() -> None:
    """The other requests of the commit get an error of their own, and can be repeated."""
    store = SlowCommit()
    point = started(store=store)
    store.free.clear()
    store.reached.clear()
    threads = in_daemons(lambda _: point.submit(pure("held", "0.001")), 1)
    assert store.reached.wait(PATIENCE)
    errors: dict[int, BaseException] = {}

    def write(number: int, _: int) -> None:
        def work(log: WriteTransaction) -> None:
            decide_release(log, parse_request(pure(f"r{number}", "0.001")), "", reserve=False)
            if number == 1:
                raise OperationRejected("the id `secret` was used for another release")

        try:
            point._journal.write(work)
        except BaseException as error:
            errors[number] = error

    for number in range(3):
        threads += in_daemons(partial(write, number), 1)
        while len(point._journal._queue) < number + 1:
            threading.Event().wait(0.001)
    store.free.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert isinstance(errors[1], OperationRejected)
    for other in (0, 2):
        assert isinstance(errors[other], LedgerUnavailable)
        assert "secret" not in str(errors[other])
    assert errors[0] is not errors[2]
    assert set(point.entries) == {"held"}
    assert point.submit(pure("r0", "0.001")).allowed


def test_a_commit_counts_records() -> None:
    queue = WriteQueue()
    large = [Ticket(lambda _: None, size) for size in (200, 100, 56, 300)]
    queue._waiting += large
    assert queue.take_batch(large[0], 256) == large[:1]
    assert queue.take_batch(large[1], 256) == large[1:3]
    assert queue.take_batch(large[3], 256) == large[3:]
