"""Tasks of child processes that write to a store (`python -m tests.faults.writer_tasks`).

write         append for ever; print the name of each payload after its commit was confirmed
write-early   the canary: print the name before the commit
spend         append while the ledger has fewer than `cap` records; look under the write lock
spend-early   the canary: look before taking the write lock
"""

from __future__ import annotations

import os
from itertools import count

from tests.faults.fork_server import serve
from tests.ledger.records import chain_records, last_head

from dpolicy.ledger.chain_reader import Head
from dpolicy.ledger.store import LedgerStore, LogWriter


def write(store: LedgerStore, cap: int, tries: int) -> None:
    """Confirm payloads after their commit."""
    head = Head()
    for number in count():
        payloads = _payloads(number)
        with store.open_for_writing() as log:
            head = _append(log, head, payloads)
        _print_names(payloads)


def write_early(store: LedgerStore, cap: int, tries: int) -> None:
    """Confirm payloads before their commit."""
    head = Head()
    for number in count():
        payloads = _payloads(number)
        with store.open_for_writing() as log:
            head = _append(log, head, payloads)
            _print_names(payloads)


def spend(store: LedgerStore, cap: int, tries: int) -> None:
    """Read, decide and append under the write lock."""
    head = Head()
    for number in range(tries):
        with store.open_for_writing() as log:
            head = last_head(list(log.records_after(head.sequence)), head)
            if head.sequence < cap:
                head = _append(log, head, [b"%d:%d" % (os.getpid(), number)])


def spend_early(store: LedgerStore, cap: int, tries: int) -> None:
    """Read and decide, then take the write lock and append."""
    head = Head()
    for number in range(tries):
        head = last_head(list(store.records_after(head.sequence)), head)
        if head.sequence < cap:
            with store.open_for_writing() as log:
                head = _append(log, head, [b"%d:%d" % (os.getpid(), number)])


def _payloads(number: int) -> list[bytes]:
    """Return one to three payloads of different sizes; their names are unique to this process."""
    names = [b"%d:%d:%d" % (os.getpid(), number, part) for part in range(1 + number % 3)]
    return [name + b" " + b"x" * (number * 797 % 6000) for name in names]


def _append(log: LogWriter, head: Head, payloads: list[bytes]) -> Head:
    head = last_head(list(log.records_after(head.sequence)), head)
    records = chain_records(head, payloads)
    log.append(records)
    return last_head(records)


def _print_names(payloads: list[bytes]) -> None:
    os.write(1, b"".join(payload.split(b" ")[0] + b"\n" for payload in payloads))


if __name__ == "__main__":
    # Load the libraries of the stores before forking, so that a child starts quickly.
    __import__("dpolicy.ledger.stores.sqlite")
    __import__("dpolicy.ledger.stores.postgres")
    serve({"write": write, "write-early": write_early, "spend": spend, "spend-early": spend_early})
