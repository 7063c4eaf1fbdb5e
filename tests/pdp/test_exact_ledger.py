"""A ledger whose policy has the accounting defaults 3: plans, records and the audit agree."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from tests.decisions.test_exact_rules import TEXT

from dpolicy.ledger.events import PolicyApplied, ReleaseDecided, from_bytes, next_record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.request_evaluation import evaluate_release
from dpolicy.policy.accounting.accounting_defaults import NEWEST_DEFAULTS
from dpolicy.privacy.loss_distribution import certified_epsilon as certified
from dpolicy.releases.body import release_from_body
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

AT = "2026-01-01T00:00:00+00:00"


def store_with_policy(defaults: int) -> MemoryStore:
    text = TEXT.format(budget="{epsilon: 1}", unit="user", more="")
    policy = compile_policy([Source("policy.yaml", text)], NEWEST_DEFAULTS)
    event = PolicyApplied(AT, "", "", policy.digest, (("policy.yaml", text),), (), defaults)
    store = MemoryStore()
    with store.open_for_writing() as log:
        log.append([next_record(None, event)])
    return store


def training(name: str, steps: int, country: str | None = None) -> dict[str, Any]:
    request: dict[str, Any] = {
        "mechanism": {
            "kind": "dp-sgd",
            "noise-multiplier": 1,
            "sampling-rate": Fraction("0.01"),
            "steps": steps,
        },
        "attributes": ["zip"],
        "unit": "user",
    }
    if country:
        request["where"] = [{"country": [country]}]
    return {"release": name, "mechanisms": [request]}


def submit_all(point: DecisionPoint) -> list[bool]:
    several = training("three", 100, "AT")
    several["mechanisms"] += training("", 150, "CH")["mechanisms"]
    contents = [
        training("one", 200),
        training("two", 400),
        several,
        {**training("one", 200), "release": "four"},
    ]
    return [point.submit(content).allowed for content in contents]


def test_decisions_of_plans_verify() -> None:
    store = store_with_policy(3)
    point = DecisionPoint(store)
    assert submit_all(point) == [True, False, True, True]
    assert audit_ledger(store).findings == ()
    point.close()


def test_a_plan_gives_the_same_answer_as_a_decision() -> None:
    store = store_with_policy(3)
    point = DecisionPoint(store)
    for content in (training("one", 200), training("two", 400)):
        release = release_from_body(content)
        expected = point.read_state(partial(evaluate_release, release=release))
        expected = expected.at_record(point.head.sequence + 1)
        point.submit(content)
        event = from_bytes(list(point.records())[-1].payload)
        assert isinstance(event, ReleaseDecided)
        assert json.loads(event.answer) == expected.as_json()
    point.close()


def test_the_audit_reads_the_defaults_of_the_record() -> None:
    """Canary: with the defaults 2, the same decisions are wrong."""
    store = store_with_policy(3)
    point = DecisionPoint(store)
    submit_all(point)
    events = [from_bytes(record.payload) for record in point.records()]
    point.close()
    assert isinstance(events[0], PolicyApplied)
    records = [next_record(None, replace(events[0], defaults=2))]
    for event in events[1:]:
        records.append(next_record(records[-1], event))
    older = MemoryStore()
    with older.open_for_writing() as log:
        log.append(records)
    assert any("should not have been" in str(finding) for finding in audit_ledger(older).findings)


def test_a_planned_release_is_certified_before_the_write_lock() -> None:
    store = store_with_policy(3)
    point = DecisionPoint(store)
    several = training("three", 120, "AT")
    several["mechanisms"] += training("", 170, "CH")["mechanisms"]
    point._submissions.plans.plan(several, "", point._journal.published)
    misses = certified._certify.cache_info().misses
    assert point.submit(several).allowed
    assert certified._certify.cache_info().misses == misses
    point.close()
