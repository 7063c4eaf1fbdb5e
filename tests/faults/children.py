"""What the child processes of the fault tests do: `python -m tests.faults.children TASK PLACE…`.

write         append for ever; print each payload once its commit was confirmed
write-early   the canary: print it before
spend         append as long as fewer than so many records are there, looked at under the lock
spend-early   the canary: looked at before the lock
"""

from __future__ import annotations

import os
import sys
from itertools import count

from tests.ledger.places import opened
from tests.ledger.records import follow, head_of

from dpolicy.ledger.reading import Head
from dpolicy.ledger.store import Log, Store


def write(store: Store) -> None:
    """Confirm what is committed."""
    head = Head()
    for number in count():
        payloads = _payloads(number)
        with store.writing() as log:
            head = _append(log, head, payloads)
        _say(payloads)


def write_early(store: Store) -> None:
    """Confirm what is not yet committed."""
    head = Head()
    for number in count():
        payloads = _payloads(number)
        with store.writing() as log:
            head = _append(log, head, payloads)
            _say(payloads)


def spend(store: Store, cap: int, tries: int) -> None:
    """Look, decide and append under the lock."""
    head = Head()
    for number in range(tries):
        with store.writing() as log:
            head = head_of(list(log.after(head.sequence)), head)
            if head.sequence < cap:
                head = _append(log, head, [b"%d:%d" % (os.getpid(), number)])


def spend_early(store: Store, cap: int, tries: int) -> None:
    """Look and decide, then lock and append."""
    head = Head()
    for number in range(tries):
        head = head_of(list(store.after(head.sequence)), head)
        if head.sequence < cap:
            with store.writing() as log:
                head = _append(log, head, [b"%d:%d" % (os.getpid(), number)])


def _payloads(number: int) -> list[bytes]:
    """One to three records of many sizes, unlike those of any other process."""
    names = [b"%d:%d:%d" % (os.getpid(), number, part) for part in range(1 + number % 3)]
    return [name + b" " + b"x" * (number * 797 % 6000) for name in names]


def _append(log: Log, head: Head, payloads: list[bytes]) -> Head:
    head = head_of(list(log.after(head.sequence)), head)
    made = follow(head, payloads)
    log.append(made)
    return head_of(made)


def _say(payloads: list[bytes]) -> None:
    for payload in payloads:
        os.write(1, payload.split(b" ")[0] + b"\n")


def _main(task: str, numbers: str, *where: str) -> None:
    store = opened(*where)
    os.write(1, b"ready\n")
    sys.stdin.buffer.readline()
    if task.startswith("write"):
        {"write": write, "write-early": write_early}[task](store)
    else:
        cap, tries = map(int, numbers.split(","))
        {"spend": spend, "spend-early": spend_early}[task](store, cap, tries)
    store.close()


if __name__ == "__main__":
    _main(*sys.argv[1:])
