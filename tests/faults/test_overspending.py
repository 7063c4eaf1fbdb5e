"""64 processes append to one ledger up to a cap: they reach it, and never exceed it."""

from __future__ import annotations

from tests.faults.fork_server import ForkServer
from tests.ledger.records import verify_chain
from tests.ledger.store_access import Address, open_at

PROCESSES, TRIES, CAP = 64, 20, 1000


def append_concurrently(
    writers: ForkServer, task: str, address: Address, *, cap: int, tries: int
) -> int:
    """Return how many records all processes append that should append `cap` together."""
    open_at(*address).close()
    writers.start(PROCESSES, task, address, cap=cap, tries=tries)
    assert list(writers.output()) == []
    assert writers.exit_codes == [0] * PROCESSES
    store = open_at(*address)
    number = len(verify_chain(store.records_after(0)))
    store.close()
    print(f"{task}: {PROCESSES} processes, cap {cap}: {number} records")
    return number


def test_concurrent_writers_reach_the_cap_and_stop(writers: ForkServer, address: Address) -> None:
    assert append_concurrently(writers, "spend", address, cap=CAP, tries=TRIES) == CAP


def test_the_canary_without_a_lock_exceeds_the_cap(writers: ForkServer, address: Address) -> None:
    assert append_concurrently(writers, "spend-early", address, cap=100, tries=5) > 100
