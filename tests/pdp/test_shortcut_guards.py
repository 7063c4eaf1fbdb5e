"""Guards of shortcuts: each test fails if one comparison before a shortcut is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.pdp.builders import GLOBAL, policy, pure, started

from dpolicy.errors import LedgerDamaged, LedgerUnavailable, OperationRejected
from dpolicy.ledger.chain import Record
from dpolicy.ledger.decided_records import decode_decided_record
from dpolicy.ledger.events import link_record
from dpolicy.pdp.audits.audit import records_with_events
from dpolicy.pdp.audits.repeated_decisions import RepeatedDecisions
from dpolicy.pdp.commands import decide_request
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.journal import journal
from dpolicy.pdp.journal.folded_ledger import format_timestamp
from dpolicy.pdp.journal.journal import Journal, utc_now
from dpolicy.pdp.journal.write_queue import Ticket
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.many_releases import batch_commands
from dpolicy.pdp.plans.decision_plan import plan_release
from dpolicy.pdp.policy_changes.prepared_policy import (
    PreparationOutdated,
    copy_releases,
    prepare_policy,
)
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.release_archive import ReleaseArchive
from dpolicy.pdp.state.snapshot import read_snapshot, write_snapshot
from dpolicy.releases.python.quick_reader import read_plain
from dpolicy.service.hot_route.submit_route import ENDPOINT, MAX_QUICK_BYTES, _is_quick


def copy_state(point: DecisionPoint) -> LedgerState:
    with point._journal.read_with_balances() as state:
        return state.copy()


def next_record(state: LedgerState, release: str, epsilon: str) -> Record:
    """Return the record that decides a release now."""
    assert state.enforced is not None
    state.update_balances()
    plan = plan_release(state.enforced, parse_request(pure(release, epsilon)), "", state.today)
    answer = plan.answer(state, release)
    assert answer is not None
    timestamp = format_timestamp(utc_now())
    return link_record(state.head, plan.record.payload(answer, release, timestamp, None))


def test_a_known_content_does_not_replace_a_release() -> None:
    point = started()
    point.submit(pure("a", "0.1"))
    state = copy_state(point)
    assert state.head is not None
    with pytest.raises(LedgerDamaged):
        state.fold([link_record(state.head, state.head.payload)])
    assert len(state.entries) == 1


def test_an_interrupt_of_the_leader_is_no_answer_to_others() -> None:
    tickets = [Ticket(lambda _: None) for _ in range(3)]
    journal._fail_all(tickets, KeyboardInterrupt())
    assert all(isinstance(ticket.failure, LedgerUnavailable) for ticket in tickets)


def test_an_older_state_is_not_published() -> None:
    point = started()
    older = copy_state(point)
    point.submit(pure("a", "0.1"))
    published = point._journal.published
    assert published.head.sequence == 2
    point._journal._publish(older)
    assert point._journal.published is published


def test_offered_totals_fit_only_groups_with_their_contents() -> None:
    point = started()
    point.submit(pure("a", "0.1"))
    with point._journal.read() as state:
        prepared = prepare_policy(copy_releases(state), policy(GLOBAL))
    assert prepared is not None
    groups = copy_state(point).charge_groups
    assert prepared.offered.fit_groups(groups)
    other = replace(prepared.offered, chain=prepared.offered.chain + 1)
    assert not other.fit_groups(groups)
    assert not prepared.offered.fit_groups([])


def test_a_prepared_policy_is_refused_by_a_state_with_other_contents() -> None:
    first, second = started(), started()
    first.submit(pure("a", "0.1", "zip"))
    second.submit(pure("a", "0.1", "views"))
    with first._journal.read() as state:
        prepared = prepare_policy(copy_releases(state), policy(GLOBAL))
    assert prepared is not None
    with pytest.raises(PreparationOutdated):
        prepared.catch_up(copy_state(second))
    assert prepared.catch_up(copy_state(first)) == []


def test_readers_forget_the_offer_of_an_apply_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    point = started()

    def fail(*_: object) -> None:
        assert point._journal._reader.state._offered is not None
        raise LedgerUnavailable("the disk is full")

    monkeypatch.setattr(Journal, "write", fail)
    with pytest.raises(LedgerUnavailable):
        point.apply(policy(GLOBAL.replace("2}}", "3}}")))
    assert point._journal._reader.state._offered is None


def test_the_quick_reader_leaves_large_utilities_to_the_strict_reader() -> None:
    body = pure("a", "1")
    assert read_plain({**body, "utility": 10**12}) is not None
    assert read_plain({**body, "utility": 10**12 + 1}) is None
    assert read_plain({**body, "utility": -1}) is None


def test_the_quick_reader_leaves_equal_orders_to_the_strict_reader() -> None:
    """The number 2 and the text `2` are the same order; one value would be lost."""
    mechanism = {"kind": "declared", "renyi": {"2": 1, 2: 9, 4: 9}}
    body: dict[str, Any] = pure("a", "1")
    body["mechanisms"][0]["mechanism"] = mechanism
    assert read_plain(body) is None
    del mechanism["renyi"][2]  # type: ignore[attr-defined]
    assert read_plain(body) is not None


def test_an_error_after_a_record_fails_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def decide_and_fail(log: WriteTransaction, *arguments: Any, **more: Any) -> None:
        decide_request(log, *arguments, **more)
        raise OperationRejected("too late")

    point = started()
    monkeypatch.setattr(batch_commands, "decide_request", decide_and_fail)
    with pytest.raises(OperationRejected, match="too late"):
        point.submit_many([pure("a", "0.1")])
    assert not point.entries


def test_a_snapshot_with_other_counts_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    point = started()
    point.submit(pure("a", "0.1"))
    state = copy_state(point)
    records = {record.sequence: record for record in point._journal.store.records_after(0)}
    data = write_snapshot(state)
    assert read_snapshot(state.sequence, data, records.__getitem__) is not None
    count = ReleaseArchive.count_by_group

    def count_more(self: ReleaseArchive, groups: int) -> Any:
        return np.asarray(count(self, groups)) + 1

    monkeypatch.setattr(ReleaseArchive, "count_by_group", count_more)
    assert read_snapshot(state.sequence, data, records.__getitem__) is None


@pytest.mark.parametrize("release", ["new", "proposed"])
def test_an_audit_checks_a_release_with_a_proposal_completely(release: str) -> None:
    point = started()
    point.submit(pure("a", "0.1"))
    point.propose(pure("proposed", "0.1"), "ana")
    state = copy_state(point)
    known = RepeatedDecisions()
    record, event = list(records_with_events(point._journal.store))[1]
    decided = next_record(state, release, "0.1")
    state.now = state.today
    known._follow_policy(state)
    known.add(state, event, record)
    assert known.fold_known_content(state, decided) is (release == "new")


@pytest.mark.parametrize(
    ("length", "is_quick"), [(MAX_QUICK_BYTES, True), (MAX_QUICK_BYTES + 1, False)]
)
def test_a_large_body_takes_no_quick_route(length: int, is_quick: bool) -> None:
    scope = {"method": ENDPOINT.method, "query_string": b""}
    headers = {"content-length": str(length), "content-type": "application/json"}
    assert _is_quick(scope, headers) is is_quick


def test_a_record_with_two_lists_of_mechanisms_is_decoded_completely() -> None:
    point = started()
    point.submit(pure("a", "0.1"))
    head = copy_state(point).head
    assert head is not None
    assert decode_decided_record(head.payload) is not None
    doubled = head.payload.replace(
        b'"body":{"mechanisms":', b'"body":{"mechanisms":[],"mechanisms":'
    )
    assert doubled != head.payload
    assert decode_decided_record(doubled) is None
