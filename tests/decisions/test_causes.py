"""Causes of denials, offers about a stated δ, and the text that a gate prints."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from tests.pdp.builders import CLASSIC, GLOBAL, HEAD, body, noise, started

from dpolicy.errors import Denied, OperationRejected
from dpolicy.integrations.gate import Gate
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.releases.decision import Decision
from dpolicy.releases.texts.stated_delta import delta_help

CHANGE = HEAD.replace("user: {}", "user: {relation: change}")
RHO = "  - {name: all, kind: custom, when: always, unit: user, budget: {rho: 0.1}}\n"
EPSILON = "  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 6}}\n"
MONTH = {"from": "2026-01-01", "to": "2026-01-31"}


def one(parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    return body("r", {"mechanism": parameters, "unit": "user", **more})


def cause(decision: Decision) -> str:
    assert not decision.allowed
    (reason,) = decision.reasons
    return reason.cause.partition(":")[0]


def test_a_relation_that_doubles_the_loss_is_the_cause() -> None:
    point = started(RHO, head=CHANGE)
    request = one(noise(rho="0.05"), relation="add-remove")
    decision = point.check(request)
    assert cause(decision) == "relation"
    assert "stated under change it would fit" in decision.reasons[0].cause
    assert point.check(one(noise(rho="0.05"))).allowed


def test_a_relation_is_no_cause_if_the_release_does_not_fit_without_it() -> None:
    request = one(noise(rho="0.5"), relation="add-remove")
    assert cause(started(RHO, head=CHANGE).check(request)) == ""


def test_group_size_is_the_cause() -> None:
    request = one(noise(rho="0.05"), time=MONTH) | {}
    request["mechanisms"][0]["unit"] = "user-day"
    decision = started(RHO).check(request)
    assert cause(decision) == "group size"
    assert "stated for `user-day` and charged to `user`" in decision.reasons[0].cause


def test_the_filter_is_the_cause_only_where_one_order_is_enough() -> None:
    point = started(GLOBAL, head=CLASSIC)
    decision = point.check(one(noise(kind="gaussian", sigma="2.8")))
    assert cause(decision) == "filter"
    assert "with all of it at the best one the loss" in decision.reasons[0].cause
    assert cause(point.check(one(noise(kind="gaussian", sigma="1")))) == ""


def test_the_filter_is_the_cause_where_the_reserves_would_be_enough() -> None:
    """The exact ε of σ 2.5 at δ 10⁻⁷ is 1.956; no order alone is enough for a budget of 1.98."""
    point = started(GLOBAL.replace("epsilon: 2", "epsilon: 1.98"))
    decision = point.check(one(noise(kind="gaussian", sigma="2.5")))
    assert cause(decision) == "filter"
    assert "with all of it at the best one the loss would be ε 1.956" in decision.reasons[0].cause
    assert cause(point.check(one(noise(kind="gaussian", sigma="2.4")))) == ""
    budget = GLOBAL.replace("2}}", "1.98}, profile: classic}")
    assert cause(started(budget).check(one(noise(kind="gaussian", sigma="2.5")))) == ""


def test_the_filter_is_no_cause_if_stated_delta_is_exceeded() -> None:
    point = started(EPSILON)
    point.import_past(body("past", {"mechanism": noise(epsilon=1, delta="5e-8"), "unit": "user"}))
    decision = point.check(one(noise(kind="gaussian", sigma="5")))
    assert decision.reasons[0].binding == "delta"
    assert cause(decision) == ""
    help_ = delta_help(decision) or ""
    assert "recorded releases already exceed" in help_ and "state a smaller δ" not in help_


def test_the_filter_is_no_cause_if_the_rule_does_not_split_delta() -> None:
    rule = (
        "  - {name: each, kind: custom, when: always, unit: user, profile: static,"
        " budget: {epsilon: 2}}\n"
    )
    point = started(GLOBAL.replace("2}}", "90}}"), each=rule)
    sigmas = [Fraction(n, 100) for n in range(200, 300)]
    denied = [
        d
        for d in (point.check(one(noise(kind="gaussian", sigma=float(s)))) for s in sigmas)
        if not d.allowed
    ]
    assert denied and {cause(decision) for decision in denied} == {""}


def test_causes_are_not_recorded() -> None:
    point = started(GLOBAL)
    request = one(noise(kind="gaussian", sigma="2.5"))
    assert point.submit(request).reasons[0].cause
    assert "cause" not in point.event(2).answer  # type: ignore[union-attr]
    assert point.submit(request).reasons[0].cause


# A stated δ


def test_the_largest_delta_that_fits_is_offered() -> None:
    point = started(EPSILON)
    decision = point.submit(one(noise(epsilon="0.1", delta="5e-8")))
    assert cause(decision) == "δ"
    (offer,) = decision.counter_offers
    assert offer["change"] == "state a smaller delta"
    delta = Fraction(str(offer["mechanisms"]["mechanism 1"]["delta"]))
    more = one(noise(epsilon="0.1", delta=delta * Fraction(102, 100)))
    assert not point.check({**more, "release": "more"}).allowed
    assert point.submit_offer(one(noise(epsilon="0.1", delta="5e-8")), 1).decision.allowed


def test_a_budget_without_delta_asks_for_another_statement() -> None:
    point = started(RHO)
    request = one(noise(epsilon="0.1", delta="5e-8"))
    (offer,) = point.check(request).counter_offers
    assert offer == {"change": "state rho or a pure epsilon instead of a delta"}
    with pytest.raises(OperationRejected, match="needs your own change"):
        point.submit_offer(request, 1)


def test_delta_and_noise_are_offered_together_if_both_are_exceeded() -> None:
    point = started(EPSILON)
    request = one(noise(epsilon="9", delta="5e-8"))
    offer = point.check(request).counter_offers[0]
    assert offer["change"] == "state a smaller delta"
    assert set(offer["mechanisms"]["mechanism 1"]) == {"epsilon", "delta"}
    assert offer["mechanisms"]["mechanism 1"]["epsilon"] == pytest.approx(6, rel=0.01)
    assert point.submit_offer(request, 1).decision.allowed


# The text of a gate


def denial(point: DecisionPoint, parameters: dict[str, Any], **fields: Any) -> str:
    gate = Gate(point, unit="user", **fields)
    with pytest.raises(Denied) as error:
        gate.reserve("q", gate.mechanism_fields(parameters), release="q")
    return str(error.value)


def test_a_denied_gate_names_rule_numbers_cause_and_the_offer_in_rho() -> None:
    point = started(RHO, head=CHANGE)
    text = denial(point, {"kind": "declared", "rho": 0.05}, relation="add-remove")
    assert text.startswith("`q` is denied; exceeded: all (unit user) ρ 0 → 0.2 of 0.1 (relation: ")
    assert text.endswith("would be allowed with rho 0.05 → 0.024796")


def test_the_offer_of_a_gate_is_allowed_by_the_library_parameter() -> None:
    point = started(GLOBAL)
    text = denial(point, {"kind": "declared", "epsilon": 2.5})
    offered = text.rpartition(" → ")[2]
    assert text.endswith(f"would be allowed with epsilon 2.5 → {offered}")
    assert point.check(one(noise(epsilon=offered))).allowed
    assert not point.check(one(noise(epsilon=Fraction(offered) * Fraction(102, 100)))).allowed
