"""What the child processes of the fault tests do.

    write         append for ever; print each payload's name once its commit was confirmed
    write-early   the canary: print it before
    spend         append as long as fewer than so many records are there, looked at under the lock
    spend-early   the canary: looked at before the lock

`python -m tests.faults.children` is a nursery: for every line that it reads, `NUMBER TASK CAP TRIES
PLACE…`, it forks so many children, and when all have ended it prints `ended` and their codes. So
a child is a process of its own, which can be killed, but starts in a millisecond.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from itertools import count

from tests.ledger.places import opened
from tests.ledger.records import follow, head_of

from dpolicy.ledger.chain_reader import Head
from dpolicy.ledger.store import LedgerStore, LogWriter


def write(store: LedgerStore, cap: int, tries: int) -> None:
    """Confirm what is committed."""
    head = Head()
    for number in count():
        payloads = _payloads(number)
        with store.open_for_writing() as log:
            head = _append(log, head, payloads)
        _say(payloads)


def write_early(store: LedgerStore, cap: int, tries: int) -> None:
    """Confirm what is not yet committed."""
    head = Head()
    for number in count():
        payloads = _payloads(number)
        with store.open_for_writing() as log:
            head = _append(log, head, payloads)
            _say(payloads)


def spend(store: LedgerStore, cap: int, tries: int) -> None:
    """Look, decide and append under the lock."""
    head = Head()
    for number in range(tries):
        with store.open_for_writing() as log:
            head = head_of(list(log.records_after(head.sequence)), head)
            if head.sequence < cap:
                head = _append(log, head, [b"%d:%d" % (os.getpid(), number)])


def spend_early(store: LedgerStore, cap: int, tries: int) -> None:
    """Look and decide, then lock and append."""
    head = Head()
    for number in range(tries):
        head = head_of(list(store.records_after(head.sequence)), head)
        if head.sequence < cap:
            with store.open_for_writing() as log:
                head = _append(log, head, [b"%d:%d" % (os.getpid(), number)])


TASKS = {"write": write, "write-early": write_early, "spend": spend, "spend-early": spend_early}


def _payloads(number: int) -> list[bytes]:
    """One to three records of many sizes, unlike those of any other process."""
    names = [b"%d:%d:%d" % (os.getpid(), number, part) for part in range(1 + number % 3)]
    return [name + b" " + b"x" * (number * 797 % 6000) for name in names]


def _append(log: LogWriter, head: Head, payloads: list[bytes]) -> Head:
    head = head_of(list(log.records_after(head.sequence)), head)
    made = follow(head, payloads)
    log.append(made)
    return head_of(made)


def _say(payloads: list[bytes]) -> None:
    os.write(1, b"".join(payload.split(b" ")[0] + b"\n" for payload in payloads))


def _child(barrier: int, task: str, cap: str, tries: str, *where: str) -> None:
    """Open, wait until every sibling was born, work."""
    try:
        store = opened(*where)
        os.write(1, b"born %d\n" % os.getpid())
        os.read(barrier, 1)
        TASKS[task](store, int(cap), int(tries))
        store.close()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os.write(1, b"failed\n")
        os._exit(1)


def _nursery() -> None:
    for line in sys.stdin:
        number, *rest = line.split()
        barrier, gate = os.pipe()
        children = []
        for _ in range(int(number)):
            child = os.fork()
            if child == 0:
                os.close(gate)
                _child(barrier, *rest)
            children.append(child)
        os.close(barrier)
        os.close(gate)
        codes = []
        for child in children:
            with contextlib.suppress(ChildProcessError):
                codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os.write(1, b"ended %s\n" % ",".join(map(str, codes)).encode())


if __name__ == "__main__":
    # The library that a child needs is loaded before it is born.
    __import__("dpolicy.ledger.stores.sqlite")
    __import__("dpolicy.ledger.stores.postgres")
    _nursery()
