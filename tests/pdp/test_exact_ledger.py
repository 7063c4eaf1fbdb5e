"""A ledger whose policy has the accounting defaults 3: plans, records and the audit agree."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath as mp
from tests.decisions.test_exact_rules import TEXT

from dpolicy.errors import OperationRejected
from dpolicy.ledger.events import PolicyApplied, ReleaseDecided, from_bytes, next_record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp import request_evaluation
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.request_evaluation import evaluate_release
from dpolicy.policy.accounting.accounting_defaults import NEWEST_DEFAULTS
from dpolicy.privacy.conversion import gaussian_log_delta
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


#: A budget of (1, 1e-6) for each release, of units that are added or removed.
ADDED = TEXT.format(budget="{epsilon: 1, delta: 1e-6}", unit="user", more=", relation: add-remove")


def stated(**parameters: Any) -> dict[str, Any]:
    return {
        "mechanism": parameters,
        "attributes": ["zip"],
        "unit": "user",
        "relation": "add-remove",
    }


#: Randomized response, and what an analyst runs after it: a rare large loss, or a Gaussian.
RESPONSE = stated(kind="declared", epsilon=Fraction("0.1"))
RATE, SIGMA = Fraction("9e-6"), Fraction("4.52")
RARE = stated(kind="dp-sgd", steps=1, **{"noise-multiplier": Fraction(1, 4), "sampling-rate": RATE})
GAUSSIAN = stated(kind="gaussian", sigma=SIGMA)


def committed(used: list[dict[str, Any]], reserved: list[dict[str, Any]]) -> bool:
    """Return whether a part of a reservation can be committed."""
    store = MemoryStore()
    point = DecisionPoint(store)
    point.apply(compile_policy([Source("policy.yaml", ADDED)], NEWEST_DEFAULTS))
    assert point.reserve({"release": "one", "mechanisms": reserved}).allowed
    try:
        point.commit("one", {"release": "one", "mechanisms": used})
    except OperationRejected as error:
        assert "no part of the reservation" in str(error)
        return False
    finally:
        assert audit_ledger(store).findings == ()
        point.close()
    return True


def test_a_used_mechanism_is_one_of_the_reservation() -> None:
    assert not committed([RESPONSE, GAUSSIAN], [RESPONSE, RARE])
    fewer = stated(kind="gaussian", sigma=20, count=3)
    for used, is_part in (
        ([stated(kind="gaussian", sigma=20, count=2)], True),
        ([stated(kind="gaussian", sigma=21, count=3), RESPONSE], True),
        ([RESPONSE], True),
        ([RESPONSE, RESPONSE], False),
        ([stated(kind="gaussian", sigma=22, count=4)], False),
        ([{**fewer, "attributes": ["views"]}], False),
    ):
        assert committed(used, [RESPONSE, fewer]) == is_part, used
    noisy = stated(kind="gaussian", sigma=40)
    assert committed([noisy, fewer], [fewer, noisy]), "the order does not matter"
    assert not committed([noisy, noisy, fewer], [fewer, noisy])


def test_a_used_mechanism_that_depends_on_outputs_exceeds_delta(monkeypatch: Any) -> None:
    """Canary: both used releases are allowed; the choice by the first output has a larger δ."""
    monkeypatch.setattr(request_evaluation, "is_part", lambda used, whole: True)
    assert committed([RESPONSE, GAUSSIAN], [RESPONSE, RARE])
    gaussian = [mp.exp(gaussian_log_delta(float(1 / SIGMA), x)) for x in (0.9, 1.1)]
    inner = [mp.log((mp.exp(x) - 1 + float(RATE)) / float(RATE)) for x in (0.9, 1.1)]
    rare = [float(RATE) * mp.exp(gaussian_log_delta(4.0, float(x))) for x in inner]
    likely = mp.exp(0.1) / (1 + mp.exp(0.1))  # of the output with the loss 0.1, not −0.1
    for same in (gaussian, rare):
        assert likely * same[0] + (1 - likely) * same[1] < 1e-6
    assert likely * gaussian[0] + (1 - likely) * rare[1] > 1.3e-6
