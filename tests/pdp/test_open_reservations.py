"""Expiry of many reservations: bounded per commit, in time order, and never to be ended later."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pdp.builders import GLOBAL, policy, pure

from dpolicy.errors import OperationRejected
from dpolicy.ledger.events import ReleaseExpired, from_bytes
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.journal import journal
from dpolicy.pdp.state.open_reservations import OpenReservations

STEP = st.tuples(
    st.sampled_from("abcdef"), st.sampled_from(["set", "end", "take"]), st.integers(0, 9)
)


@given(st.lists(STEP, max_size=30), st.integers(1, 3))
def test_the_expired_reservations_are_those_of_a_scan(
    steps: list[tuple[str, str, int]], limit: int
) -> None:
    """Naive twin: look at all reservations."""
    times, naive = OpenReservations(), dict[str, str]()
    for release, step, time in steps:
        if step == "set" and release not in naive:
            times[release] = naive[release] = str(time)
        elif step == "end":
            times.pop(release, None)
            naive.pop(release, None)
        elif step == "take":
            due = sorted((at, name) for name, at in naive.items() if at < str(time))
            expected = [name for _, name in due[:limit]]
            assert OpenReservations(times).take_expired(str(time), limit) == expected
            assert times.take_expired(str(time), limit) == expected
            for name in expected:
                del times[name], naive[name]
    assert times == naive


def reserve_many(count: int) -> tuple[DecisionPoint, MemoryStore, list[datetime]]:
    """Return a ledger whose reservations have all expired, and its clock."""
    now = [datetime(2026, 3, 1, tzinfo=UTC)]
    store = MemoryStore()
    point = DecisionPoint(store, lambda: now[0])
    point.apply(policy(GLOBAL))
    for number in range(count):
        now[0] += timedelta(seconds=1)
        assert point.reserve(pure(f"r{number}", "0.001")).allowed
    now[0] += timedelta(days=400)
    return point, store, now


def expired_releases(store: MemoryStore) -> list[str]:
    events = [from_bytes(record.payload) for record in store.records_after(0)]
    return [event.release for event in events if isinstance(event, ReleaseExpired)]


def test_a_commit_expires_a_bounded_number_in_time_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_BATCH", 4)
    point, store, _ = reserve_many(10)
    for expired in (4, 8, 10):
        point.submit(pure(f"s{expired}", "0.001"))
        assert expired_releases(store) == [f"r{number}" for number in range(expired)]


def test_a_reservation_that_waits_for_its_expiry_cannot_be_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "MAX_BATCH", 4)
    point, store, _ = reserve_many(10)
    with pytest.raises(OperationRejected, match="expired"):
        point.commit("r9")
    with pytest.raises(OperationRejected, match="expired"):
        point.void("r9", "nothing was read")
    assert "r9" not in expired_releases(store)
    point.submit(pure("s", "0.001"))
    assert "r9" in expired_releases(store)
