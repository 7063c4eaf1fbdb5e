"""A snapshot saves reading, is validated, and its loss changes no result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.pdp.builders import pure, started

from dpolicy.errors import LedgerDamaged
from dpolicy.ledger.chain import Record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp import journal, snapshot
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.ledger_state import LedgerState


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A ledger with a snapshot of all its records."""
    monkeypatch.setattr(journal, "MIN_RECORDS_FOR_SNAPSHOT", 1)
    made = MemoryStore()
    point = started(store=made)
    for number in range(5):
        point.submit(pure(f"r{number}", "0.1"))
    point.reserve(pure("held", "0.1"))
    point.close()
    return made


def open_ledger(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[Any]]:
    """Return the number of records read to open a ledger, and the balances."""
    read: list[Record] = []
    real = LedgerState.fold

    def follow(self: LedgerState, records: Iterable[Record]) -> None:
        taken = list(records)
        read.extend(taken)
        real(self, taken)

    with monkeypatch.context() as patch:
        patch.setattr(LedgerState, "fold", follow)
        point = DecisionPoint(store)
        return len(read), [(b.rule.name, b.loss, b.spenders) for b in point.budgets()]


def test_a_snapshot_saves_reading_and_gives_the_same_balances(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = list(store.records_after(0))
    short, spent = open_ledger(store, monkeypatch)
    long, again = open_ledger(MemoryStore(records), monkeypatch)
    assert (short, long) == (0, len(records))
    assert spent == again


def test_a_reservation_can_be_ended_after_a_snapshot(store: MemoryStore) -> None:
    point = DecisionPoint(store)
    point.void("held", "nothing was read")
    assert (
        point.budgets()[0].loss
        == DecisionPoint(MemoryStore(list(store.records_after(0)))).budgets()[0].loss
    )
    assert point.submit(pure("r0", "0.1")).replayed


@pytest.mark.parametrize("what", ["empty", "garbage", "cut", "other code", "other history"])
def test_an_invalid_snapshot_is_not_used(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    sequence, data = store.load_snapshot() or (0, b"")
    records = list(store.records_after(0))
    if what == "empty":
        data = b""
    elif what == "garbage":
        data = b"x" * len(data)
    elif what == "cut":
        data = data[: len(data) // 2]
    elif what == "other code":
        monkeypatch.setattr(snapshot, "WRITTEN_BY", "another version")
    else:
        other = started(store=(made := MemoryStore()))
        for number in range(6):
            other.submit(pure(f"x{number}", "0.2"))
        records = list(made.records_after(0))
    kept = MemoryStore(records)
    kept.save_snapshot(sequence, data)
    count, spent = open_ledger(kept, monkeypatch)
    assert count == len(records)
    assert spent == open_ledger(MemoryStore(records), monkeypatch)[1]


def test_a_store_refuses_a_snapshot_ahead_of_its_head(store: MemoryStore) -> None:
    sequence, data = store.load_snapshot() or (0, b"")
    with pytest.raises(LedgerDamaged, match="replaced by an older copy"):
        MemoryStore(list(store.records_after(0))).save_snapshot(sequence + 1, data)


def test_a_failed_snapshot_does_not_fail_the_request(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: MemoryStore, sequence: int, data: bytes) -> None:
        raise OSError("no space")

    monkeypatch.setattr(MemoryStore, "save_snapshot", full)
    monkeypatch.setattr(journal, "SNAPSHOT_INTERVAL", 1)
    point = DecisionPoint(store)
    assert point.submit(pure("new", "0.1")).allowed
    point.close()
