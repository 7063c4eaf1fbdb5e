"""A snapshot saves reading, is validated, and its loss changes no result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.balances.test_rule_grids import check_same_function
from tests.pdp.builders import pure, started
from tests.pdp.state_machine import compiled
from tests.pdp.strategies import policies, where_and_when
from tests.pdp.test_plans import FIRST, HISTORY, SIMPLE, STEP, Run, both, take_step

from dpolicy.balances.rule_grids import RuleGrid
from dpolicy.errors import LedgerDamaged
from dpolicy.ledger.chain import Record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.journal import journal
from dpolicy.pdp.journal.journal import Journal
from dpolicy.pdp.state import snapshot
from dpolicy.pdp.state.charge_groups import ChargeGroup
from dpolicy.pdp.state.ledger_state import LedgerState


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


def wait_for_the_answer(monkeypatch: pytest.MonkeyPatch, seconds: float) -> bool:
    """Return whether a request is answered while its snapshot is still being saved."""
    store, answered, results = MemoryStore(), Event(), list[bool]()
    real = MemoryStore.save_snapshot

    def save_after_the_answer(self: MemoryStore, sequence: int, data: bytes) -> None:
        results.append(answered.wait(seconds))
        real(self, sequence, data)

    point = started(store=store)
    monkeypatch.setattr(journal, "SNAPSHOT_INTERVAL", 1)
    monkeypatch.setattr(MemoryStore, "save_snapshot", save_after_the_answer)
    assert point.submit(pure("new", "0.1")).allowed
    answered.set()
    point.close()
    assert store.load_snapshot() is not None
    return results[0]


def test_no_request_waits_for_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wait_for_the_answer(monkeypatch, 60)


def test_a_snapshot_in_the_thread_of_a_request_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Canary: the request waits for its snapshot."""
    monkeypatch.setattr(Journal, "_save_snapshot_later", Journal._save_snapshot)
    assert not wait_for_the_answer(monkeypatch, 0.01)


def test_a_request_is_answered_if_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: Thread) -> None:
        raise RuntimeError("can't start new thread")

    point = started()
    monkeypatch.setattr(journal, "SNAPSHOT_INTERVAL", 1)
    monkeypatch.setattr(Thread, "start", refuse)
    assert point.submit(pure("new", "0.1")).allowed
    monkeypatch.undo()
    point.close()


# A snapshot and the records after it give the state of a complete fold


def save_snapshot(run: Run) -> None:
    with run.point._journal.read_with_balances() as state:
        run.store.save_snapshot(state.sequence, snapshot.write_snapshot(state))


def content_and_count(group: ChargeGroup) -> tuple[Any, ...]:
    return group.by, group.mechanisms, group.meaning, group.month, group.number, group.count


def check_same_states(restored: Run, folded: Run) -> None:
    """Compare the states of the readers: entries, reservations, groups, proposals, balances."""
    with (
        restored.point._journal.read_with_balances() as first,
        folded.point._journal.read_with_balances() as second,
    ):
        for one, other in ((first, second), (first.copy(), second.copy())):
            assert dict(one.entries.items()) == dict(other.entries.items())
            assert one.open_reservations == other.open_reservations
            assert one.proposals == other.proposals
            assert (one.month, one.policy_record) == (other.month, other.policy_record)
            for mine, its in zip(one.charge_groups, other.charge_groups, strict=True):
                assert content_and_count(mine) == content_and_count(its)
                assert set(one.spending_releases(mine)) == set(other.spending_releases(its))
            grids = one.balances.grids.grid_by_rule, other.balances.grids.grid_by_rule
            outside = grids[0] < 0
            assert (outside == (grids[1] < 0)).all()
            # the row of a rule in a grid is no longer read
            assert (one.balances.finite[outside] == other.balances.finite[outside]).all()
            assert (one.balances.infinite[outside] == other.balances.infinite[outside]).all()
            for number in np.flatnonzero(grids[0] >= 0).tolist():
                check_same_function(
                    one.balances.segments_for(number), other.balances.segments_for(number)
                )


def compare_restored(start: dict[str, Any], steps: list[Any], cut: int, tail: int) -> LedgerState:
    """Take the same steps on two ledgers, of which one is opened from a snapshot; compare them.

    The snapshot has `cut` steps, the records after it have `tail` steps; the others come later.
    Return the state of the snapshot.
    """
    runs = [Run(has_plans=True), Run(has_plans=True)]
    both(lambda run: run.do(lambda p: p.apply(compiled(json.dumps(start)))), runs)
    active: list[dict[str, Any]] = [start]
    asked: list[list[Any]] = []
    for number, step in enumerate(steps):
        if number == cut:
            save_snapshot(runs[0])
        if number == cut + tail:
            both(Run.open, runs)
            check_same_states(*runs)
        take_step(runs, active, asked, number, step)
    assert list(runs[0].store.records_after(0)) == list(runs[1].store.records_after(0))
    for run in runs:
        run.open()
    check_same_states(*runs)
    sequence, data = runs[0].store.load_snapshot() or (0, b"")
    assert runs[0].point._journal._reader.snapshot_sequence == sequence > 0
    assert runs[1].point._journal._reader.snapshot_sequence == 0
    records = list(runs[0].store.records_after(0))
    state = snapshot.read_snapshot(sequence, data, lambda number: records[number - 1])
    assert state is not None
    return state


CHEAP = {"kind": "declared", "epsilon": 0.01}
WORDS = {"unit": "user", "attributes": ["c"], "labels": {"deployment": "standard"}}
#: Releases and reservations that read a part of the data and cost little, so that most are allowed.
PLACED_STEP = st.tuples(
    st.sampled_from(("reserve", "submit", "many")),
    where_and_when().map(lambda place: [{"mechanism": CHEAP, **WORDS, **place}]),
    st.integers(0, 30),
    st.booleans(),
)


@settings(
    max_examples=25,
    deadline=None,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(
    policies(),
    st.lists(PLACED_STEP, min_size=3, max_size=5),
    st.lists(STEP, min_size=12, max_size=20),
    st.sampled_from((8, 6, 10)),
    st.sampled_from((2, 4, 0)),
)
def test_a_snapshot_and_its_tail_give_the_state_of_a_fold(
    start: dict[str, Any], placed: list[Any], steps: list[Any], cut: int, tail: int
) -> None:
    compare_restored(start, [*placed, *steps, *placed], cut, tail)


IN_AUSTRIA = {**FIRST, "where": {"country": "AT"}}
#: Number of the step that reserves a release.
RESERVED = len(HISTORY) + 1
#: Steps after a snapshot of `HISTORY`: the same places, the end of a reservation, another policy.
LATER = [
    ("submit", [IN_AUSTRIA], 0, False),
    ("many", [FIRST], 0, False),
    ("void", [FIRST], RESERVED, False),
    ("apply", [FIRST], 1, True),
    ("submit", [IN_AUSTRIA], 0, False),
]
STEPS = [*HISTORY, ("submit", [IN_AUSTRIA], 0, False), ("reserve", [FIRST], 0, False), *LATER]


def test_a_fixed_snapshot_gives_the_state_of_a_fold() -> None:
    state = compare_restored(SIMPLE, STEPS, cut=len(STEPS) - len(LATER), tail=2)
    assert state.balances.grids.grids
    assert state.open_reservations.keys() == {f"r{RESERVED}"}


def lose_a_cell(patch: pytest.MonkeyPatch) -> None:
    """Write a snapshot whose grids have no loss in one cell."""
    real = RuleGrid.to_arrays

    def to_arrays(self: RuleGrid) -> dict[str, Any]:
        arrays = real(self)
        amounts = arrays["amounts"].copy()
        amounts[:, int(np.argmax(amounts.any(axis=0)))] = 0
        return {**arrays, "amounts": amounts}

    patch.setattr(RuleGrid, "to_arrays", to_arrays)


def lose_a_reservation(patch: pytest.MonkeyPatch) -> None:
    """Write a snapshot without the newest open reservation."""
    real = snapshot._build_header

    def build(state: LedgerState) -> dict[str, Any]:
        header = real(state)
        return {**header, "open": dict(list(header["open"].items())[:-1])}

    patch.setattr(snapshot, "_build_header", build)


@pytest.mark.parametrize("lose", [lose_a_cell, lose_a_reservation])
def test_a_snapshot_that_loses_something_is_detected(
    lose: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canaries of the tests above."""
    lose(monkeypatch)
    with pytest.raises(AssertionError):
        compare_restored(SIMPLE, STEPS, cut=len(STEPS) - len(LATER), tail=2)
