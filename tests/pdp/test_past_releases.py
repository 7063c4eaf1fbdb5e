"""Past releases: their own dates, previews, and imports in one commit."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.pdp.builders import body, mechanism, pure, started

from dpolicy import DecisionPoint
from dpolicy.errors import InvalidValue, OperationRejected, ReleaseRejected
from dpolicy.ledger.events import ReleaseImported, from_bytes, next_record, release_day
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger


def test_an_imported_release_keeps_the_date_at_which_it_happened() -> None:
    store = MemoryStore()
    point = started(store=store)
    number = point.import_past(pure("old", "1"), by="otto", released="2019-02-28")
    event = point.event(number)
    assert isinstance(event, ReleaseImported)
    assert (event.released, release_day(event)) == ("2019-02-28", "2019-02-28")
    undated = point.event(point.import_past(pure("older", "1")))
    assert release_day(undated) == undated.at[:10]
    assert audit_ledger(store).findings == ()
    assert DecisionPoint(store).event(number) == event


def test_the_date_does_not_change_the_charge() -> None:
    dated, undated = started(), started()
    dated.import_past(pure("old", "1"), released="2001-01-01")
    undated.import_past(pure("old", "1"))
    assert [b.spent for b in dated.budgets()] == [b.spent for b in undated.budgets()]


def test_a_repeated_import_must_state_the_same_date() -> None:
    point = started()
    number = point.import_past(pure("old", "1"), released="2019-02-28")
    assert point.import_past(pure("old", "1")) == number
    assert point.import_past(pure("old", "1"), released="2019-02-28") == number
    with pytest.raises(OperationRejected, match="recorded with the date 2019-02-28, not 2019-03"):
        point.import_past(pure("old", "1"), released="2019-03-01")
    assert point.budgets()[0].spent["epsilon"] == 1


@pytest.mark.parametrize("day", ["2019-02-29", "20190228", "yesterday", "", 20190228])
def test_a_date_that_is_no_day_is_refused(day: str) -> None:
    point = started()
    head = point.head
    with pytest.raises(InvalidValue, match="P007"):
        point.import_many([pure("old", "1")], released={"old": day})
    assert point.head == head


def test_a_date_in_the_future_is_refused_and_a_finding_of_the_audit() -> None:
    store = MemoryStore()
    point = started(store=store)
    with pytest.raises(OperationRejected, match="2999-01-01 of a past release is in the future"):
        point.import_past(pure("old", "1"), released="2999-01-01")
    point.import_past(pure("old", "1"), released="2019-02-28")
    records = list(store.records_after(0))
    event = from_bytes(records[-1].payload)
    assert isinstance(event, ReleaseImported)
    forged = ReleaseImported(
        event.at,
        event.by,
        event.because,
        "new",
        {**event.body, "release": "new"},
        event.meaning,
        "2999-01-01",
    )
    with store.open_for_writing() as log:
        log.append([next_record(records[-1], forged)])
    (finding,) = audit_ledger(store).findings
    assert "in the future" in finding.problem


def test_the_audit_reads_a_record_of_the_last_day_of_the_calendar() -> None:
    store = MemoryStore()
    started(store=store).import_past(pure("old", "1"), released="2019-02-28")
    (*first, last) = store.records_after(0)
    event = from_bytes(last.payload)
    assert isinstance(event, ReleaseImported)
    late = replace(event, at="9999-12-31T00:00:00+00:00")
    forged = MemoryStore([*first, next_record(first[-1], late)])
    assert audit_ledger(forged).findings == ()


def test_a_preview_states_what_the_import_then_does() -> None:
    point = started()
    point.import_past(pure("a", "0.5"))
    past = [pure("a", "0.5"), pure("b", "1"), pure("c", "1")]
    head, before = point.head, point.budgets()
    preview = point.preview_import(past, released={"b": "2019-02-28"})
    assert (point.head, point.budgets()) == (head, before)
    assert preview.new == ("b", "c")
    assert preview.recorded == {"a": head.sequence}
    assert [status.rule.name for status in preview.new_conflicts] == ["global"]
    assert point.import_many(past) == [head.sequence, head.sequence + 1, head.sequence + 2]
    after = {status.rule.name: status for status in point.budgets()}
    assert {status.rule.name: status for _, status in preview.charged} == after


def test_a_preview_raises_as_the_import_does() -> None:
    point = started()
    unknown = body("x", {**mechanism(epsilon="1"), "attributes": ["zpi"]})
    for call in (point.preview_import, point.import_many):
        with pytest.raises(ReleaseRejected, match="R002"):
            call([pure("a", "1"), unknown])
    point.submit(pure("taken", "0.1"))
    for call in (point.preview_import, point.import_many):
        with pytest.raises(OperationRejected, match="taken"):
            call([pure("taken", "0.2")])


def test_the_clock_of_the_point_decides_what_is_in_the_future() -> None:
    point = DecisionPoint(":memory:", clock=lambda: datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(OperationRejected, match="future"):
        point.import_past(pure("old", "1"), released="2020-01-03")
    point.import_past(pure("old", "1"), released="2020-01-02")  # a time zone ahead of UTC
