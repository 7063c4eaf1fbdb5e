"""What child processes do with a decision point; a nursery like `tests.faults.children`.

decide            ask, commit and void for ever in so many threads (`cap`); print each id and
                  status once it was acknowledged
decide-late       the canary: a store that commits only every third block
submit            submit so many releases (`tries`), and as many that all the others submit too
submit-unlocked   the canary: a store that locks only after the decision was made
"""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from threading import Thread

from tests.faults import children
from tests.faults.requests import STEP, body, policy, step, story
from tests.ledger.records import follow, head_of

from dpolicy.ledger.chain import Record
from dpolicy.ledger.store import LedgerStore, LogWriter
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint


class Passing:
    """A store that passes everything on to another; the canaries change one thing."""

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


class Late(Passing):
    """Ends a block without a commit, and commits three blocks together."""

    def __init__(self, store: LedgerStore) -> None:
        super().__init__(store)
        self._blocks = 0
        self._held = ExitStack()

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        if self._blocks % 3 == 0:
            self._log = self._held.enter_context(self.store.open_for_writing())
        self._blocks += 1
        yield self._log
        if self._blocks % 3 == 0:
            self._held.close()


class Unlocked(Passing):
    """Lets anybody decide at any time, and brings the records into line afterwards."""

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        yield _Unlocked(self.store)


class _Unlocked:
    def __init__(self, store: LedgerStore) -> None:
        self._store = store

    def records_after(self, sequence: int) -> Iterator[Record]:
        return self._store.records_after(sequence)

    def append(self, records: Sequence[Record]) -> None:
        with self._store.open_for_writing() as log:
            head = head_of(list(log.records_after(0)))
            log.append(follow(head, [record.payload for record in records]))


def decide(store: LedgerStore, cap: int, tries: int) -> None:
    """Tell stories in threads that share a decision point, and so its commits."""
    point = DecisionPoint(store)
    threads = [Thread(target=_tell, args=(point, thread)) for thread in range(cap)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def decide_late(store: LedgerStore, cap: int, tries: int) -> None:
    """The same, acknowledged too early."""
    decide(Late(store), 1, tries)


def submit(store: LedgerStore, cap: int, tries: int) -> None:
    """Spend as much as there is."""
    point = DecisionPoint(store)
    for number in range(tries):
        _submit(point, f"{os.getpid()}.0.{number}")
        _submit(point, f"all.0.{number}")


def submit_unlocked(store: LedgerStore, cap: int, tries: int) -> None:
    """The same, with a decision point that does not live to see its records renumbered."""
    for number in range(tries):
        _submit(DecisionPoint(Unlocked(store)), f"{os.getpid()}.0.{number}")


def _tell(point: DecisionPoint, thread: int) -> None:
    try:
        for number in count():
            release = f"{os.getpid()}.{thread}.{number}"
            for status in story(release):
                step(point, release, status)
                _say(release, status)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _submit(point: DecisionPoint, release: str) -> None:
    decision = point.submit(body(release, STEP))
    word = "allowed" if decision.allowed else "denied"
    _say(release, f"{word} again" if decision.replayed else word)


def _say(release: str, status: str) -> None:
    os.write(1, f"{release} {status}\n".encode())


children.TASKS.update(
    {
        "decide": decide,
        "decide-late": decide_late,
        "submit": submit,
        "submit-unlocked": submit_unlocked,
    }
)


def _warm_up() -> None:
    """Load and build what a child needs before it is born."""
    __import__("dpolicy.ledger.stores.sqlite")
    __import__("dpolicy.ledger.stores.postgres")
    point = DecisionPoint(MemoryStore())
    point.apply(policy())
    for release in ("0.0.0", "0.0.1"):
        for status in story(release):
            step(point, release, status)


if __name__ == "__main__":
    _warm_up()
    gc.freeze()  # or each child copies what the collector touches
    children._nursery()
