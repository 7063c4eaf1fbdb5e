"""Journal: many threads, shared commits, and stores that fail."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.pdp.builders import GLOBAL, policy, pure, started
from tests.pdp.test_write_queue import SlowCommit

from dpolicy.decisions.decide import decide
from dpolicy.errors import DPolicyError, LedgerUnavailable, OperationRejected
from dpolicy.ledger.events import ReleaseDecided
from dpolicy.ledger.store import LogWriter
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp import commands, request_evaluation
from dpolicy.pdp.audits.audit import audit_ledger, records_with_events
from dpolicy.pdp.decision_point import DecisionPoint

THREADS = 16


class Slow(MemoryStore):
    """A store that counts its commits, and blocks the first one until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0
        self.free, self.entered = threading.Event(), threading.Event()
        self.free.set()

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        self.commits += 1
        with super().open_for_writing() as log:
            self.entered.set()
            assert self.free.wait(60)
            yield log


class Failing(MemoryStore):
    """A store that fails at the end of a commit, a given number of times."""

    failures = 0

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        with super().open_for_writing() as log:
            yield log
            if self.failures:
                self.failures -= 1
                raise LedgerUnavailable("the disk is full")


def spent(store: MemoryStore) -> Fraction:
    """Return the sum of the allowed ε in the ledger."""
    allowed = [
        e for _, e in records_with_events(store) if isinstance(e, ReleaseDecided) and e.allowed
    ]
    return sum(
        (m["mechanism"]["epsilon"] for e in allowed for m in e.body["mechanisms"]), Fraction(0)
    )


def in_threads(work: Callable[[int], Any], count: int) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, range(count)))


def test_waiting_requests_share_a_commit_and_each_gets_its_decision() -> None:
    store = Slow()
    point = started(store=store)
    before, requests = store.commits, 40
    store.free.clear()
    store.entered.clear()
    with ThreadPoolExecutor(requests) as pool:
        futures = [pool.submit(point.submit, pure("r0", "0.1"))]
        assert store.entered.wait(60)
        futures += [pool.submit(point.submit, pure(f"r{n}", "0.1")) for n in range(1, requests)]
        while len(point._journal._queue) < requests - 1:  # all but the one that is being written
            threading.Event().wait(0.001)
        store.free.set()
        decisions = [future.result() for future in futures]
    assert [d.release for d in decisions] == [f"r{n}" for n in range(requests)]
    assert store.commits - before == 2
    assert sum(d.allowed for d in decisions) == 20
    written = [e.release for _, e in records_with_events(store) if isinstance(e, ReleaseDecided)]
    assert sorted(written) == sorted(d.release for d in decisions)
    by_number = {r.sequence: e for r, e in records_with_events(store)}
    for decision in decisions:
        event = by_number[decision.sequence or 0]
        assert isinstance(event, ReleaseDecided)
        assert (event.release, event.allowed) == (decision.release, decision.allowed)
    assert audit_ledger(store).findings == ()


def test_a_refused_request_does_not_affect_others_in_its_commit() -> None:
    store = Slow()
    point = started(store=store)
    point.submit(pure("taken", "0.1"))
    store.free.clear()
    works: list[Callable[[], Any]] = [
        lambda: point.submit(pure("a", "0.1")),
        lambda: point.submit(pure("taken", "0.2")),
        lambda: point.void("taken", because="x"),
        lambda: point.submit(pure("b", "0.1")),
        lambda: point.submit(pure("taken", "0.1")),
    ]
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(work) for work in works]
        store.free.set()
        errors = [future.exception() for future in futures]
    assert [type(error) for error in errors] == [
        type(None),
        OperationRejected,
        OperationRejected,
        *2 * [type(None)],
    ]
    assert futures[4].result().replayed
    assert spent(store) == Fraction("0.3")


@pytest.mark.parametrize("points", [1, 3])
def test_many_threads_never_overspend(points: int) -> None:
    store = MemoryStore()
    some = [started(store=store), *(DecisionPoint(store) for _ in range(points - 1))]
    decisions = in_threads(lambda n: some[n % points].submit(pure(f"r{n}", "0.3")), 64)
    assert Counter(d.allowed for d in decisions) == {True: 6, False: 58}
    assert spent(store) == Fraction("1.8")
    assert sorted(d.sequence for d in decisions) == list(range(2, 66))
    assert audit_ledger(store).findings == ()


def test_a_check_outside_of_the_lock_would_overspend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary of the test above: decide on a state that other threads change."""
    store = MemoryStore()
    point = started(store=store)
    meeting = threading.Barrier(THREADS)
    decisions_by_number: dict[int, Any] = {}

    def early(n: int) -> Any:
        decisions_by_number[n] = point.check(pure(f"r{n}", "0.3"))
        meeting.wait(60)
        return point.submit(pure(f"r{n}", "0.3"))

    def by_memory(state: Any, release: Any, verdict: Any) -> Any:
        return replace(decisions_by_number[int(release.id[1:])], sequence=None)

    with monkeypatch.context() as patch:
        patch.setattr(DecisionPoint, "check", _evaluate)
        patch.setattr(commands, "decide_by_plan", lambda *_, **__: None)
        patch.setattr(commands, "explain_verdict", by_memory)
        in_threads(early, THREADS)
    assert spent(store) > 2
    wrong_records = [f.sequence for f in audit_ledger(store).findings if "should not" in f.problem]
    assert wrong_records == list(range(8, THREADS + 2))


def _evaluate(point: DecisionPoint, request: Any) -> Any:
    with point._journal.read_with_balances() as state:
        return request_evaluation.evaluate_release(state, request_evaluation.parse_request(request))


def test_repeated_ids_from_threads_are_charged_once() -> None:
    store = MemoryStore()
    point = started(store=store)
    decisions = in_threads(lambda n: point.submit(pure(f"r{n % 4}", "0.25")), 64)
    assert Counter(d.replayed for d in decisions) == {False: 4, True: 60}
    assert spent(store) == 1
    firsts = {d.release: d for d in decisions if not d.replayed}
    assert all(replace(d, replayed=False) == firsts[d.release] for d in decisions)


def test_readers_and_writers_and_officers_at_once() -> None:
    store = MemoryStore()
    point = started(GLOBAL.replace("2}}", "2, delta: 0}}"), store=store)
    other = policy(GLOBAL.replace("2}}", "3, delta: 0}}"))

    def work(n: int) -> None:
        if n % 8 == 0:
            point.apply(other)
        elif n % 8 == 1:
            assert all(balance.holds for balance in point.budgets())
        else:
            point.submit(pure(f"r{n}", "0.1"))

    in_threads(work, 80)
    assert spent(store) <= 3
    assert audit_ledger(store).findings == ()


def test_after_a_failed_write_nothing_is_allowed_and_the_next_request_succeeds() -> None:
    store = Failing()
    point = started(store=store)
    assert point.submit(pure("a", "1")).allowed
    store.failures = 1
    with pytest.raises(LedgerUnavailable):
        point.submit(pure("b", "1"))
    assert point.entries.keys() == {"a"}
    assert point.budgets()[0].spent == {"epsilon": 1.0, "delta": 0.0}
    decision = point.submit(pure("b", "1"))
    assert decision.allowed
    assert not decision.replayed
    assert not point.submit(pure("c", "0.1")).allowed
    assert audit_ledger(store).findings == ()


def test_a_failed_write_fails_every_request_of_the_batch() -> None:
    store = Failing()
    point = started(store=store)
    store.failures = 10**6
    outcomes = in_threads(lambda n: _outcome(lambda: point.submit(pure(f"r{n}", "0.1"))), 40)
    assert {type(outcome) for outcome in outcomes} == {LedgerUnavailable}
    store.failures = 0
    assert [type(event).__name__ for _, event in records_with_events(store)] == ["PolicyApplied"]
    decisions = in_threads(lambda n: point.submit(pure(f"r{n}", "0.1")), 40)
    assert Counter(d.allowed for d in decisions) == {True: 20, False: 20}
    assert not any(d.replayed for d in decisions)


def test_an_unreliable_store_never_overspends() -> None:
    store = Failing()
    point = started(store=store)

    def work(n: int) -> Any:
        if n % 5 == 0:
            store.failures = 1
        return _outcome(lambda: point.submit(pure(f"r{n}", "0.3")))

    outcomes = in_threads(work, 60)
    allowed = {d.release for d in outcomes if not isinstance(d, Exception) and d.allowed}
    written = {
        e.release
        for _, e in records_with_events(store)
        if isinstance(e, ReleaseDecided) and e.allowed
    }
    assert allowed == written
    assert spent(store) == Fraction("1.8")
    assert audit_ledger(store).findings == ()


def _outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except DPolicyError as error:
        return error


def test_the_audit_detects_a_wrong_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    point = started(store=store)
    point.submit(pure("fine", "1"))

    def generous(*arguments: Any) -> Any:
        verdict = decide(*arguments)
        held = (replace(c, holds=np.ones_like(c.holds)) for c in verdict.checks)
        return replace(verdict, checks=tuple(held))

    with monkeypatch.context() as patch:
        patch.setattr(commands, "decide_by_plan", lambda *_, **__: None)
        patch.setattr(request_evaluation, "decide", generous)
        assert point.submit(pure("too-much", "5")).allowed
    audit = audit_ledger(store)
    assert [finding.sequence for finding in audit.findings] == [3]
    assert "too-much" in audit.findings[0].problem
    assert audit.records == 3


def test_a_decision_is_returned_only_after_its_event_is_durable() -> None:
    store = SlowCommit()
    point = started(store=store)
    store.free.clear()
    store.reached.clear()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(point.submit, pure("a", "1"))
        assert store.reached.wait(60)  # the release is decided, but not durable
        assert not future.done()
        assert len(list(store.records_after(0))) == 1
        store.free.set()
        decision = future.result()
    assert [r.sequence for r in store.records_after(1)] == [decision.sequence]
