"""What a model of the decision point found and must not come back: one test each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import pytest

from dpolicy.errors import LedgerDamaged, OperationRejected, PolicyRejected
from dpolicy.ledger.events import ReleaseVoided, from_bytes, next_record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audit import audit_ledger
from dpolicy.pdp.conflicts import find_conflicts, smallest_sufficient_budget
from dpolicy.pdp.decision_point import DecisionPoint
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


def asked(name: str, attribute: str, **mechanism: Any) -> dict[str, Any]:
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
def test_a_commit_cannot_leave_the_rules_that_were_checked(
    text: str, reserved: str, used: str
) -> None:
    made, _ = point(text)
    assert made.reserve(asked("a", reserved)).allowed
    with pytest.raises(OperationRejected):
        made.commit("a", asked("a", used))
    assert any(balance.spent["epsilon"] for balance in made.budgets())


def test_what_was_denied_or_voided_is_not_imported_by_its_id() -> None:
    made, _ = point(ALL)
    assert not made.submit(asked("a", "views", kind="declared", epsilon=5)).allowed
    assert made.reserve(asked("b", "views")).allowed
    made.void("b", because="never ran")
    for name, epsilon in (("a", 5), ("b", Fraction(3, 2))):
        with pytest.raises(OperationRejected, match="another id"):
            made.import_past(asked(name, "views", kind="declared", epsilon=epsilon))


def test_what_was_voided_is_not_allowed_again_for_free() -> None:
    made, _ = point(ALL)
    made.reserve(asked("a", "views"))
    made.void("a", because="never ran")
    with pytest.raises(OperationRejected, match="voided"):
        made.submit(asked("a", "views"))


@pytest.mark.parametrize(
    "change", [{"additive": True}, {"unit": "user"}, {"time": {"from": "2026-01-01"}}]
)
def test_relabelling_keeps_all_that_decides_the_loss(change: dict[str, Any]) -> None:
    made, _ = point(ALL)
    body = asked("a", "views", kind="gaussian", sigma=10)
    made.submit(body)
    changed = {**body, "mechanisms": [{**body["mechanisms"][0], **change}]}
    with pytest.raises(OperationRejected, match="keeps the mechanisms"):
        made.relabel(changed, because="a mistake")
    with pytest.raises(OperationRejected, match="because"):
        made.relabel(body, because=" ")


def test_verify_finds_what_was_written_past_the_decision_point() -> None:
    made, store = point(ALL)
    made.reserve(asked("a", "views"))
    made.commit("a")
    with store.open_for_writing() as log:
        *_, last = log.records_after(0)
        log.append([next_record(last, ReleaseVoided("2026-01-01T00:00:00+00:00", "", "a", "no"))])
    assert [finding.sequence for finding in audit_ledger(store).findings] == [4]


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2", "10"])
def test_the_smallest_budget_does_not_depend_on_the_one_that_was_asked(epsilon: str) -> None:
    made, _ = point(ALL, "{epsilon: 90000}")
    for number in range(20):
        made.submit(asked(f"r{number}", "views", kind="gaussian", sigma=2))
    (found,) = made.conflicts(policy(ALL, f"{{epsilon: {epsilon}}}"))
    assert smallest_sufficient_budget(found)["epsilon"] == pytest.approx(15.4, abs=0.1)


def test_leaks_that_exceed_a_budget_say_which_delta_would_do() -> None:
    made, _ = point(ALL, "{epsilon: 9, delta: 1e-3}")
    leaky = {"kind": "declared", "epsilon": 1, "delta": Fraction("5e-8")}
    assert made.submit(asked("a", "views", **leaky)).allowed
    (found,) = made.conflicts(policy(ALL, "{epsilon: 9, delta: 1e-7}"))
    least = smallest_sufficient_budget(found)
    again = policy(ALL, f"{{epsilon: {least['epsilon']}, delta: {least['delta']}}}")
    assert made.conflicts(again) == []
    (native,) = made.conflicts(policy(ALL, "{rho: 9}"))
    assert smallest_sufficient_budget(native) == {"rho": None}


def test_what_is_shown_passes_the_budget_only_where_the_rule_breaks() -> None:
    made, _ = point(
        HEAD
        + "policies:\n  - {name: g, kind: custom, when: always, unit: user, budget: {mu: 0.3}}\n"
    )
    decision = made.submit(asked("a", "views", kind="declared", mu=Fraction("0.3")))
    assert decision.allowed and decision.reasons[0].after == {"mu": 0.3}


def test_those_who_spent_most_are_ranked_by_what_they_spent() -> None:
    made, _ = point(ALL, "{epsilon: 9}")
    for number in range(6):
        made.submit(asked(f"tiny{number}", "views", kind="gaussian", sigma=10**4))
    made.submit(asked("large", "views", kind="declared", epsilon=5))
    (balance,) = made.budgets()
    assert balance.spenders[0] == "large"


def test_what_is_charged_is_charged_again_after_a_restart() -> None:
    made, store = point(ALL)
    made.submit(
        asked("a", "views", kind="declared", renyi={Fraction(5, 2): Fraction(1, 10), 16: 1})
    )
    spent = [balance.loss for balance in made.budgets()]
    assert [balance.loss for balance in DecisionPoint(store).budgets()] == spent
    assert audit_ledger(store).findings == ()


def test_a_clock_in_another_zone_does_not_expire_early() -> None:
    store = MemoryStore()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    DecisionPoint(store, lambda: start).apply(policy(ALL))
    DecisionPoint(store, lambda: start).reserve(asked("a", "views"))
    east = timezone(timedelta(hours=14))
    later = DecisionPoint(store, lambda: (start + timedelta(hours=11)).astimezone(east))
    later.reserve(asked("b", "views", kind="declared", epsilon=Fraction(1, 10)))
    assert later.entries["a"].status == "reserved"


def test_a_dry_run_of_a_known_id_says_what_submit_would() -> None:
    made, _ = point(ALL)
    made.submit(asked("a", "views"))
    assert made.check(asked("a", "views")).replayed


@pytest.mark.parametrize(
    "payload", [b'{"event":[],"format":1}', b'{"event":"x","format":NaN}', b"[]", b"\xff"]
)
def test_a_record_that_is_no_event_is_damage(payload: bytes) -> None:
    with pytest.raises(LedgerDamaged):
        from_bytes(payload)


@pytest.mark.parametrize("body", [{"release": "a"}, {"release": "\ud800", "mechanisms": []}, {}])
def test_a_body_that_is_no_release_is_told(body: dict[str, Any]) -> None:
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


def test_conflicts_of_an_empty_history_are_none() -> None:
    made, _ = point(ALL)
    with made._journal.read() as state:
        assert find_conflicts(state) == []
