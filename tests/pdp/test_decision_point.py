"""Regression tests of the decision point: commit, import, relabel, restart and conflicts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import pytest
from tests.pdp.builders import exceeded_rules

from dpolicy.errors import LedgerDamaged, OperationRejected, PolicyRejected
from dpolicy.ledger.events import ReleaseVoided, from_bytes, next_record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.policy_changes.conflicts import find_exceeded_rules
from dpolicy.pdp.policy_changes.sufficient_budget import is_smallest, smallest_sufficient_budget
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

HEAD = (
    "dpolicy: 1\naccounting: {delta: 1e-7}\n"
    "schema:\n  attributes: {zip: {risk: low}, views: {risk: low}}\n"
)
ZIP_ONLY = HEAD + (
    "policies:\n  - {name: z, kind: custom, when: '\"zip\" in attributes', unit: user, "
    "budget: {epsilon: 2}}\n"
)
ALL = HEAD + (
    "policies:\n  - {name: g, kind: custom, when: always, unit: user, budget: BUDGET}\n"
    "each-release:\n  - {name: cap, kind: custom, when: '\"zip\" in attributes', unit: user, "
    "budget: {epsilon: 0.1}}\n"
)


def policy(text: str, budget: str = "{epsilon: 2}") -> CompiledPolicy:
    return compile_policy([Source("policy.yaml", text.replace("BUDGET", budget))])


def request(name: str, attribute: str, **mechanism: Any) -> dict[str, Any]:
    fields = mechanism or {"kind": "declared", "epsilon": Fraction(3, 2)}
    return {"release": name, "mechanisms": [{"mechanism": fields, "attributes": [attribute]}]}


def point(text: str, budget: str = "{epsilon: 2}") -> tuple[DecisionPoint, MemoryStore]:
    store = MemoryStore()
    made = DecisionPoint(store)
    made.apply(policy(text, budget))
    return made, store


@pytest.mark.parametrize(
    ("text", "reserved", "used"), [(ZIP_ONLY, "zip", "views"), (ALL, "views", "zip")]
)
def test_a_commit_cannot_avoid_the_rules_of_the_reservation(
    text: str, reserved: str, used: str
) -> None:
    made, _ = point(text)
    assert made.reserve(request("a", reserved)).allowed
    with pytest.raises(OperationRejected):
        made.commit("a", request("a", used))
    assert any(balance.spent["epsilon"] for balance in made.budgets())


def test_a_denied_or_voided_id_cannot_be_imported() -> None:
    made, _ = point(ALL)
    assert not made.submit(request("a", "views", kind="declared", epsilon=5)).allowed
    assert made.reserve(request("b", "views")).allowed
    made.void("b", because="never ran")
    for name, epsilon in (("a", 5), ("b", Fraction(3, 2))):
        with pytest.raises(OperationRejected, match="another id"):
            made.import_past(request(name, "views", kind="declared", epsilon=epsilon))


def test_a_voided_id_cannot_be_submitted_again() -> None:
    made, _ = point(ALL)
    made.reserve(request("a", "views"))
    made.void("a", because="never ran")
    with pytest.raises(OperationRejected, match="voided"):
        made.submit(request("a", "views"))


@pytest.mark.parametrize(
    "change", [{"additive": True}, {"where": {"country": "CH"}}, {"time": {"from": "2026-01-01"}}]
)
def test_relabelling_keeps_all_fields_that_determine_the_loss(change: dict[str, Any]) -> None:
    made, _ = point(ALL)
    body = request("a", "views", kind="gaussian", sigma=10)
    made.submit(body)
    changed = {**body, "mechanisms": [{**body["mechanisms"][0], **change}]}
    with pytest.raises(OperationRejected, match="must keep the mechanisms"):
        made.relabel(changed, because="a mistake")
    with pytest.raises(OperationRejected, match="because"):
        made.relabel(body, because=" ")


def test_the_audit_detects_events_that_bypass_the_decision_point() -> None:
    made, store = point(ALL)
    made.reserve(request("a", "views"))
    made.commit("a")
    with store.open_for_writing() as log:
        *_, last = log.records_after(0)
        log.append([next_record(last, ReleaseVoided("2026-01-01T00:00:00+00:00", "", "a", "no"))])
    assert [finding.sequence for finding in audit_ledger(store).findings] == [4]


@pytest.mark.parametrize(("profile", "smallest"), [("classic", 15.4), ("anchored", 14.154)])
@pytest.mark.parametrize("epsilon", ["0.5", "1", "2", "10"])
def test_the_smallest_budget_does_not_depend_on_the_candidate_budget(
    epsilon: str, profile: str, smallest: float
) -> None:
    text = ALL.replace("delta: 1e-7", f"delta: 1e-7, profile: {profile}")
    made, _ = point(text, "{epsilon: 90000}")
    for number in range(20):
        made.submit(request(f"r{number}", "views", kind="gaussian", sigma=2))
    (conflict,) = exceeded_rules(made, policy(text, f"{{epsilon: {epsilon}}}"))
    assert smallest_sufficient_budget(conflict)["epsilon"] == pytest.approx(smallest, abs=0.1)


@pytest.mark.parametrize("profile", ["anchored", "gaussian"])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "3"])
def test_a_sufficient_budget_splits_delta_by_its_own_epsilon(epsilon: str, profile: str) -> None:
    anchored = ALL.replace("delta: 1e-7", f"delta: 1e-7, profile: {profile}")
    made = DecisionPoint(MemoryStore())
    made.apply(policy(anchored, "{epsilon: 90000}"))
    for number in range(3):
        made.submit(request(f"r{number}", "views", kind="gaussian", sigma=2.5))
    (conflict,) = exceeded_rules(made, policy(anchored, f"{{epsilon: {epsilon}}}"))
    least = smallest_sufficient_budget(conflict)["epsilon"]
    assert least is not None
    assert made.conflicts(policy(anchored, f"{{epsilon: {least}}}")) == []
    assert made.conflicts(policy(anchored, f"{{epsilon: {least * 0.93}}}"))
    assert is_smallest(conflict) == (profile == "gaussian")


def test_the_smallest_budget_for_an_exceeded_delta_names_the_delta() -> None:
    made, _ = point(ALL, "{epsilon: 9, delta: 1e-3}")
    leaky = {"kind": "declared", "epsilon": 1, "delta": Fraction("5e-8")}
    assert made.submit(request("a", "views", **leaky)).allowed
    (conflict,) = exceeded_rules(made, policy(ALL, "{epsilon: 9, delta: 1e-7}"))
    smallest = smallest_sufficient_budget(conflict)
    again = policy(ALL, f"{{epsilon: {smallest['epsilon']}, delta: {smallest['delta']}}}")
    assert made.conflicts(again) == []
    epsilon = (smallest["epsilon"] or 0.0) - 2e-12
    less = policy(ALL, f"{{epsilon: {epsilon}, delta: {smallest['delta']}}}")
    assert made.conflicts(less)
    (native,) = exceeded_rules(made, policy(ALL, "{rho: 9}"))
    assert smallest_sufficient_budget(native) == {"rho": None}


def test_the_displayed_loss_exceeds_the_budget_only_if_the_rule_is_exceeded() -> None:
    made, _ = point(
        HEAD
        + "policies:\n  - {name: g, kind: custom, when: always, unit: user, budget: {mu: 0.3}}\n"
    )
    decision = made.submit(request("a", "views", kind="declared", mu=Fraction("0.3")))
    assert decision.allowed and decision.reasons[0].after == {"mu": 0.3}


def test_top_spenders_are_ranked_by_cost() -> None:
    made, _ = point(ALL, "{epsilon: 9}")
    for number in range(6):
        made.submit(request(f"tiny{number}", "views", kind="gaussian", sigma=10**4))
    made.submit(request("large", "views", kind="declared", epsilon=5))
    (balance,) = made.budgets()
    assert balance.spenders[0] == "large"


def test_balances_are_the_same_after_a_restart() -> None:
    made, store = point(ALL)
    made.submit(
        request("a", "views", kind="declared", renyi={Fraction(5, 2): Fraction(1, 10), 16: 1})
    )
    spent = [balance.loss for balance in made.budgets()]
    assert [balance.loss for balance in DecisionPoint(store).budgets()] == spent
    assert audit_ledger(store).findings == ()


def test_a_clock_in_another_zone_does_not_expire_early() -> None:
    store = MemoryStore()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    DecisionPoint(store, lambda: start).apply(policy(ALL))
    DecisionPoint(store, lambda: start).reserve(request("a", "views"))
    east = timezone(timedelta(hours=14))
    later = DecisionPoint(store, lambda: (start + timedelta(hours=11)).astimezone(east))
    later.reserve(request("b", "views", kind="declared", epsilon=Fraction(1, 10)))
    assert later.entries["a"].status == "reserved"


def test_a_check_of_a_recorded_id_replays_the_decision() -> None:
    made, _ = point(ALL)
    made.submit(request("a", "views"))
    assert made.check(request("a", "views")).replayed


@pytest.mark.parametrize(
    "payload", [b'{"event":[],"format":1}', b'{"event":"x","format":NaN}', b"[]", b"\xff"]
)
def test_a_record_without_an_event_is_damage(payload: bytes) -> None:
    with pytest.raises(LedgerDamaged):
        from_bytes(payload)


@pytest.mark.parametrize("body", [{"release": "a"}, {"release": "\ud800", "mechanisms": []}, {}])
def test_an_invalid_release_body_is_rejected(body: dict[str, Any]) -> None:
    made, _ = point(ALL)
    with pytest.raises(PolicyRejected):
        made.submit(body)


def test_floats_and_order_of_attributes_do_not_matter() -> None:
    made, _ = point(ALL)
    first = {"mechanism": {"kind": "declared", "epsilon": 0.01}, "attributes": ["zip", "views"]}
    again = {
        "mechanism": {"kind": "declared", "epsilon": Fraction(1, 100)},
        "attributes": ["views", "zip"],
    }
    assert made.submit({"release": "a", "mechanisms": [first]}).allowed
    assert made.submit({"release": "a", "mechanisms": [again]}).replayed


def test_an_empty_ledger_has_no_conflicts() -> None:
    made, _ = point(ALL)
    with made._journal.read_with_balances() as state:
        assert find_exceeded_rules(state) == []
