"""Tasks of child processes that use a decision point (`python -m tests.faults.decision_tasks`).

decide            submit, commit and void for ever in `cap` threads; print the id and the status
                  of a release after the decision point has acknowledged it
decide-late       the canary: a store that commits only every third write block
submit            submit `tries` releases of this process, and `tries` that every child submits
submit-unlocked   the canary: a store that takes the lock only after the decision
"""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from threading import Thread

from tests.faults.fork_server import serve
from tests.faults.lifecycles import COST_STEP, advance, body, lifecycle, policy
from tests.ledger.records import chain_records, last_head

from dpolicy.ledger.chain import Record
from dpolicy.ledger.store import LedgerStore, LogWriter
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint


class DelegatingStore:
    """A store that delegates every call to another store; each canary changes one method."""

    def __init__(self, store: LedgerStore) -> None:
        self.store = store

    @property
    def name(self) -> str:
        return self.store.name

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        with self.store.open_for_writing() as log:
            yield log

    def records_after(self, sequence: int) -> Iterator[Record]:
        return self.store.records_after(sequence)

    def load_snapshot(self) -> tuple[int, bytes] | None:
        return self.store.load_snapshot()

    def save_snapshot(self, sequence: int, data: bytes) -> None:
        self.store.save_snapshot(sequence, data)

    def close(self) -> None:
        self.store.close()


class LateCommitStore(DelegatingStore):
    """A store that commits three write blocks together."""

    def __init__(self, store: LedgerStore) -> None:
        super().__init__(store)
        self._blocks = 0
        self._transaction = ExitStack()

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        if self._blocks % 3 == 0:
            self._log = self._transaction.enter_context(self.store.open_for_writing())
        self._blocks += 1
        yield self._log
        if self._blocks % 3 == 0:
            self._transaction.close()


class UnlockedStore(DelegatingStore):
    """A store whose writers decide without the lock; it renumbers their records afterwards."""

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        yield _UnlockedLog(self.store)


class _UnlockedLog:
    def __init__(self, store: LedgerStore) -> None:
        self._store = store

    def records_after(self, sequence: int) -> Iterator[Record]:
        return self._store.records_after(sequence)

    def append(self, records: Sequence[Record]) -> None:
        with self._store.open_for_writing() as log:
            head = last_head(list(log.records_after(0)))
            log.append(chain_records(head, [record.payload for record in records]))


def decide(store: LedgerStore, cap: int, tries: int) -> None:
    """Run lifecycles of releases in threads that share a decision point and its commits."""
    point = DecisionPoint(store)
    threads = [Thread(target=_run_lifecycles, args=(point, thread)) for thread in range(cap)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def decide_late(store: LedgerStore, cap: int, tries: int) -> None:
    """Run `decide` on a store that acknowledges too early."""
    decide(LateCommitStore(store), 1, tries)


def submit(store: LedgerStore, cap: int, tries: int) -> None:
    """Submit releases until the budget is spent."""
    point = DecisionPoint(store)
    for number in range(tries):
        _submit(point, f"{os.getpid()}.0.{number}")
        _submit(point, f"all.0.{number}")


def submit_unlocked(store: LedgerStore, cap: int, tries: int) -> None:
    """Submit without the lock.

    Each release gets a new decision point: an existing one would notice the renumbered records.
    """
    for number in range(tries):
        _submit(DecisionPoint(UnlockedStore(store)), f"{os.getpid()}.0.{number}")


def _run_lifecycles(point: DecisionPoint, thread: int) -> None:
    try:
        for number in count():
            release = f"{os.getpid()}.{thread}.{number}"
            for status in lifecycle(release):
                advance(point, release, status)
                _print_status(release, status)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _submit(point: DecisionPoint, release: str) -> None:
    decision = point.submit(body(release, COST_STEP))
    status = "allowed" if decision.allowed else "denied"
    _print_status(release, f"{status} again" if decision.replayed else status)


def _print_status(release: str, status: str) -> None:
    os.write(1, f"{release} {status}\n".encode())


TASKS = {
    "decide": decide,
    "decide-late": decide_late,
    "submit": submit,
    "submit-unlocked": submit_unlocked,
}


def _warm_up() -> None:
    """Load the libraries and fill the caches that children use, before forking."""
    __import__("dpolicy.ledger.stores.sqlite")
    __import__("dpolicy.ledger.stores.postgres")
    point = DecisionPoint(MemoryStore())
    point.apply(policy())
    for release in ("0.0.0", "0.0.1"):
        for status in lifecycle(release):
            advance(point, release, status)


if __name__ == "__main__":
    _warm_up()
    gc.freeze()  # otherwise the collector touches these objects and each child copies them
    serve(TASKS)
