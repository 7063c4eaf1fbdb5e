"""Findings of the audit for records that the decision point would not have written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from tests.ledger.records import chain_records, last_head, seeded_random
from tests.pdp.builders import GLOBAL, HEAD, body, mechanism, policy, pure
from tests.pdp.test_meanings import without_meanings

from dpolicy.cli.commands.ledger import verify as command
from dpolicy.cli.main import exit_code
from dpolicy.errors import DPolicyError, LedgerUnavailable
from dpolicy.ledger.canonical import decode_canonical, encode_canonical
from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import (
    Event,
    ReleaseCommitted,
    ReleaseDecided,
    ReleaseExpired,
    ReleaseImported,
    ReleaseRelabelled,
    ReleaseVoided,
    from_bytes,
    next_record,
)
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits import recorded_decisions
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.policy.accounting.accounting_defaults import (
    FIRST_DEFAULTS,
    NEWEST_DEFAULTS,
    AccountingDefaults,
)

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW, TOMORROW = (moment.isoformat() for moment in (AT, AT + timedelta(days=1)))
LATER = (AT + timedelta(days=1, seconds=1)).isoformat()


class Days:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = AT

    def __call__(self) -> datetime:
        return self.now


def history(
    defaults: AccountingDefaults = NEWEST_DEFAULTS,
) -> tuple[DecisionPoint, MemoryStore, Days]:
    """`a` of ε 1 is allowed, `held` of 0.5 is reserved, `big` is denied."""
    store, clock = MemoryStore(), Days()
    point = DecisionPoint(store, clock)
    point.apply(policy(GLOBAL, defaults=defaults))
    point.submit(pure("a", "1", "zip"))
    point.reserve(pure("held", "0.5", "zip"))
    point.submit(pure("big", "5", "zip"))
    return point, store, clock


def problems(*events: Event) -> list[str]:
    """Return the findings after events were appended without the decision point."""
    _, store, _ = history(FIRST_DEFAULTS)
    records: list[Record] = without_meanings(store.records_after(0))
    for event in events:
        records.append(next_record(records[-1], event))
    findings = audit_ledger(MemoryStore(records)).findings
    assert {finding.sequence for finding in findings} <= {5}
    return [finding.problem for finding in findings]


def test_records_of_the_decision_point_have_no_findings() -> None:
    point, store, clock = history()
    point.relabel(pure("a", "1", "views", "zip"), because="views too")
    fewer = point.propose_relabelling(pure("a", "1", "views"), because="no zip codes", by="ana")
    point.approve(fewer.number, by="ben")
    point.commit("held", pure("held", "0.25", "zip"))
    for number in range(3):
        point.reserve(pure(f"late-{number}", "0.1"))
    point.void("late-0", because="crashed")
    clock.now += timedelta(days=2)
    point.import_past(pure("past", "9"), because="forgotten")
    assert audit_ledger(store).findings == ()
    kinds = [type(from_bytes(record.payload)) for record in store.records_after(0)]
    assert kinds.count(ReleaseExpired) == 2


WRONG: list[tuple[Event, str]] = [
    (ReleaseRelabelled(NOW, "", "x", "a", pure("a", "0.001", "zip")), "must keep the mechanisms"),
    (ReleaseRelabelled(NOW, "", "x", "a", pure("b", "1", "zip")), "the body of `a` has the id `b`"),
    (ReleaseRelabelled(NOW, "", " ", "a", pure("a", "1", "views")), "`a` has no `because`"),
    (ReleaseRelabelled(NOW, "", "x", "a", pure("a", "1", "zap")), "no attribute `zap`"),
    (ReleaseRelabelled(NOW, "", "x", "b", pure("b", "1")), "record refers to unknown release `b`"),
    (
        ReleaseCommitted(NOW, "", "held", pure("held", "9", "zip")),
        "costs more than the reservation",
    ),
    (
        ReleaseCommitted(NOW, "", "held", pure("a", "0.5", "zip")),
        "the body of `held` has the id `a`",
    ),
    (ReleaseCommitted(NOW, "", "held", pure("held", "0.5", "zap")), "no attribute `zap`"),
    (ReleaseCommitted(LATER, "", "held", None), "`held` was committed or voided after it expired"),
    (ReleaseCommitted(NOW, "", "a", None), "`a` was allowed, so there was no reservation"),
    (ReleaseVoided(NOW, "", "held", ""), "`held` has no `because`"),
    (
        ReleaseVoided(LATER, "", "held", "crashed"),
        "`held` was committed or voided after it expired",
    ),
    (ReleaseExpired(NOW, "held"), "`held` was recorded as expired before its expiry time"),
    (ReleaseExpired(TOMORROW, "held"), "`held` was recorded as expired before its expiry time"),
    (ReleaseImported(NOW, "", "", "past", pure("past", "1", "zap")), "no attribute `zap`"),
    (ReleaseImported(NOW, "", "", "past", pure("a", "1")), "the body of `past` has the id `a`"),
]


@pytest.mark.parametrize(("event", "problem"), WRONG, ids=lambda value: str(value)[:60])
def test_an_event_that_would_be_refused_is_a_finding(event: Event, problem: str) -> None:
    (finding,) = problems(event)
    assert problem in finding


RIGHT: list[Event] = [
    ReleaseRelabelled(NOW, "", "x", "a", pure("a", "1", "views")),
    ReleaseCommitted(TOMORROW, "", "held", pure("held", "0.1", "zip")),
    ReleaseVoided(TOMORROW, "", "held", "crashed"),
    ReleaseExpired(LATER, "held"),
]


@pytest.mark.parametrize("event", RIGHT, ids=lambda event: type(event).__name__)
def test_a_valid_event_is_no_finding(event: Event) -> None:
    assert problems(event) == []


def test_a_relabelling_is_compared_with_the_last_charge() -> None:
    """A partial commit is followed by a relabelling."""
    committed = ReleaseCommitted(NOW, "", "held", pure("held", "0.25", "zip"))
    again = ReleaseRelabelled(NOW, "", "x", "held", pure("held", "0.25", "views"))
    _, store, _ = history(FIRST_DEFAULTS)
    records = without_meanings(store.records_after(0))
    for event in (committed, again, replace(again, body=pure("held", "0.5", "views"))):
        records.append(next_record(records[-1], event))
    assert [finding.sequence for finding in audit_ledger(MemoryStore(records)).findings] == [7]


def test_reasons_may_differ_between_processes_with_different_histories() -> None:
    """A process keeps the segments of a voided release; a new process has none."""
    rules = "".join(
        f"  - {{name: r{n}, kind: custom, when: '{when}', unit: user, budget: {{epsilon: 3}}}}\n"
        for n, when in enumerate(['"zip" in attributes', '"views" in attributes'])
    )
    both = ("views", "zip")
    store = MemoryStore()
    point = DecisionPoint(store)
    point.apply(policy(rules, head=HEAD))
    partly = {**mechanism(("zip",), epsilon=1), "where": [{"country": ["CH"]}]}
    point.reserve(body("partly", partly))
    assert point.check(pure("new", "1", "zip")).allowed
    point.void("partly", because="crashed")
    decision = point.check(pure("a", "9", *both))
    fresh = DecisionPoint(store)
    assert fresh.check(pure("a", "9", *both)) != decision, "else the audit could ask for more"
    point.submit(pure("a", "9", *both))
    fresh.submit(pure("b", "9", *both))
    fresh.submit(pure("c", "1", *both))
    assert audit_ledger(store).findings == ()


class Gone(MemoryStore):
    """A store whose server stops while it is read."""

    def records_after(self, sequence: int) -> Iterator[Record]:
        yield from list(super().records_after(sequence))[:2]
        raise LedgerUnavailable("the server went away")


def test_an_unreadable_store_is_no_finding() -> None:
    _, store, _ = history()
    with pytest.raises(LedgerUnavailable, match="went away"):
        audit_ledger(Gone(list(store.records_after(0))))


def test_an_unreachable_ledger_is_not_a_changed_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, store, _ = history()
    monkeypatch.setattr(command, "open_existing", lambda _: Gone(list(store.records_after(0))))
    assert exit_code(["verify", "--ledger", "x"]) == 1
    assert "went away" in capsys.readouterr().err


#: Values of a wrong type.
VALUES: list[Any] = [
    *(None, True, 0, -1, Fraction("0.5"), "", "x", [], {}, [[]], [None], {"a": 1}, "{}", "null"),
    {"release": "a", "mechanisms": [{"mechanism": {"kind": "declared", "epsilon": -1}}]},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every part of a plain value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inner:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a plain value with one part replaced."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def rich() -> list[dict[str, Any]]:
    """Return every kind of event, with every part of a release, as plain values."""
    store, clock = MemoryStore(), Days()
    point = DecisionPoint(store, clock)
    point.apply(policy(GLOBAL))
    full = {
        **mechanism(("zip",), epsilon="0.1"),
        "name": "n",
        "unit": "user",
        "relation": "change",
        "additive": True,
        "also": {"user-day": {"epsilon": Fraction("0.1")}},
        "labels": {"stage": "final", "purpose": ["research"]},
        "where": [{"country": ["CH"], "age": {"from": 18, "to": 64}}],
        "time": {"from": "2026-10-28", "to": "2026-10-28"},
    }
    request = {**body("full", full), "by": "ana", "utility": 1}
    point.import_past({**request, "release": "past"}, because="x")
    point.reserve(request)
    point.commit("full", request)
    point.reserve(pure("void", "0.1"))
    point.void("void", because="x")
    point.reserve(pure("late", "0.1"))
    clock.now += timedelta(days=2)
    point.relabel(request, because="x")
    point.submit(pure("big", "5"))
    return [decode_canonical(record.payload) for record in store.records_after(0)]


EVENTS = rich()


@pytest.mark.parametrize("number", range(len(EVENTS)), ids=lambda n: EVENTS[n]["event"])
def test_a_malformed_event_raises_only_dpolicy_errors(number: int) -> None:
    """The audit and the decision point raise nothing but a `DPolicyError`."""
    chance = seeded_random(f"shapes-{number}")
    for path in places(EVENTS[number]):
        for value in chance.sample(VALUES, 4):
            events = [*EVENTS[:number], changed(EVENTS[number], path, value), *EVENTS[number + 1 :]]
            store = MemoryStore(
                chain_records(last_head([]), [encode_canonical(event) for event in events])
            )
            audit_ledger(store)
            with suppress(DPolicyError):
                DecisionPoint(store).submit(pure("new", "0.1"))


def test_an_answer_is_compared_as_a_whole() -> None:
    """The audit compares every part of an answer."""
    _, store, _ = history()
    records = list(store.records_after(0))
    event = from_bytes(records[3].payload)
    assert isinstance(event, ReleaseDecided)
    answer_fields = json.loads(event.answer)
    for path in places(answer_fields):
        answer = json.dumps(changed(answer_fields, path, "x"), ensure_ascii=False, sort_keys=True)
        forged = [*records[:3], next_record(records[2], replace(event, answer=answer))]
        assert [f.sequence for f in audit_ledger(MemoryStore(forged)).findings] == [4], path


def test_without_comparing_answers_a_forged_one_would_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Canary of the test above."""
    monkeypatch.setattr(recorded_decisions, "decision_outline", lambda _: ())
    monkeypatch.setattr(recorded_decisions, "has_same_reasons", lambda *_, **__: True)
    with pytest.raises(AssertionError):
        test_an_answer_is_compared_as_a_whole()


SWISS = {"where": [{"country": ["CH"]}]}
AUSTRIAN = {"where": [{"country": ["AT"]}]}


def at_two_blocks() -> tuple[list[Record], ReleaseDecided]:
    """`both` charges two countries with different balances; return records and its decision."""
    store = MemoryStore()
    point = DecisionPoint(store, Days())
    point.apply(policy(GLOBAL))
    point.submit(body("swiss", {**mechanism(("zip",), epsilon="0.5"), **SWISS}))
    point.submit(body("austrian", {**mechanism(("zip",), epsilon="0.25"), **AUSTRIAN}))
    point.submit(pure("both", "0.1", "zip"))
    records = list(store.records_after(0))
    event = from_bytes(records[-1].payload)
    assert isinstance(event, ReleaseDecided)
    return records, event


def audit_changed_reason(**changes: Any) -> list[int]:
    """Return the records with findings after the reason of `both` was changed."""
    records, event = at_two_blocks()
    answer = json.loads(event.answer)
    (reason,) = answer["reasons"]
    assert reason["at"]["country"] == "CH"
    assert reason["spent"]["epsilon"] == 0.5
    reason.update(changes)
    text = json.dumps(answer, ensure_ascii=False, sort_keys=True)
    forged = [*records[:-1], next_record(records[-2], replace(event, answer=text))]
    return [finding.sequence for finding in audit_ledger(MemoryStore(forged)).findings]


def loss(epsilon: float) -> dict[str, float]:
    return {"delta": 0.0, "epsilon": epsilon}


def test_a_reason_at_another_block_is_recomputed_there() -> None:
    """Before version 0.3 the reported block depended on the history; its numbers were true."""
    austria = {"country": "AT", "age": 0}
    assert audit_changed_reason(at=austria, spent=loss(0.25), after=loss(0.35)) == []
    for false in (
        {"spent": loss(0.25)},
        {"at": austria},
        {"at": austria, "spent": loss(0.2), "after": loss(0.3)},
        {"at": austria, "spent": loss(0.25), "after": loss(0.35), "cost": loss(0.2)},
        {"at": {"country": "XX", "age": 0}, "spent": loss(0.25), "after": loss(0.35)},
        {"at": {"planet": "mars"}},
        {"rule": "invented"},
        {"rule": ["a list"]},
        {"leaks": None, "binding": None},
        {"holds": 1},
        {"spent-most": ["swiss"]},
        {"cause": "an invented cause"},
    ):
        assert audit_changed_reason(**false) == [4], false


@pytest.mark.parametrize("name", ["expires", "offers"])
def test_a_record_has_the_expiry_time_and_no_offers(name: str) -> None:
    _, store, _ = history()
    *earlier, held, _ = store.records_after(0)
    event = from_bytes(held.payload)
    assert isinstance(event, ReleaseDecided)
    assert event.expires == TOMORROW
    answer = json.loads(event.answer)
    answer["would-fit"] = [{"change": "anything goes"}]
    text = json.dumps(answer, ensure_ascii=False, sort_keys=True)
    forged = replace(event, expires="never") if name == "expires" else replace(event, answer=text)
    records = [*earlier, next_record(earlier[-1], forged)]
    assert [finding.sequence for finding in audit_ledger(MemoryStore(records)).findings] == [3]


def test_a_reason_for_a_rule_that_is_not_reported_now_is_recomputed() -> None:
    """The history determines which of equally tight rules are reported; their numbers are true."""
    scopes = {"zips": '"zip" in attributes', "views": '"views" in attributes'}
    scopes |= {"final": 'labels.stage == "final"', "global": "always"}
    store = MemoryStore()
    point = DecisionPoint(store, Days())
    point.apply(
        policy(
            *(
                f"  - {{name: {name}, kind: custom, when: '{when}', unit: user, "
                f"budget: {{epsilon: {2 + number}}}}}\n"
                for number, (name, when) in enumerate(scopes.items())
            )
        )
    )
    (fourth,) = point.check(pure("a", "1")).as_json()["reasons"][1:]
    decision = point.submit(pure("a", "1", "zip", "views"))
    assert fourth["rule"] == "global"
    assert [reason.rule for reason in decision.reasons] == ["zips", "views", "final"]
    (record, last) = store.records_after(0)
    event = from_bytes(last.payload)
    assert isinstance(event, ReleaseDecided)
    for spent, findings in ((0.0, []), (0.5, [2])):
        answer = json.loads(event.answer)
        answer["reasons"][2] = {**fourth, "spent": {**fourth["spent"], "epsilon": spent}}
        text = json.dumps(answer, ensure_ascii=False, sort_keys=True)
        forged = [record, next_record(record, replace(event, answer=text))]
        found = audit_ledger(MemoryStore(forged)).findings
        assert [finding.sequence for finding in found] == findings


def test_without_recomputing_a_false_number_at_another_block_would_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Canary of the test above."""
    monkeypatch.setattr(
        recorded_decisions, "recompute_reason", lambda state, release, reason, reading: reason
    )
    with pytest.raises(AssertionError):
        test_a_reason_at_another_block_is_recomputed_there()
