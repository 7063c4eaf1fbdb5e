"""Commands of officers: tighten and loosen a policy, import, relabel, and add units."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.pdp.builders import (
    GLOBAL,
    HEAD,
    ZIP,
    body,
    exceeded_rules,
    mechanism,
    policy,
    pure,
    started,
)

from dpolicy.errors import OperationRejected, PolicyConflicts
from dpolicy.ledger.events import ReleaseDecided, from_bytes
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.policy_changes.sufficient_budget import smallest_sufficient_budget
from dpolicy.pdp.rule_status import RuleStatus


def test_a_tighter_policy_lists_conflicts_and_is_refused_unless_each_is_accepted() -> None:
    point = started(GLOBAL, ZIP % "{epsilon: 2}")
    point.submit(pure("a", "1.5", "zip"))
    point.submit(pure("b", "0.25", "views"))
    tighter = policy(GLOBAL.replace("2}}", "1.6}}"), ZIP % "{epsilon: 1}")
    for accept in ((), ("zips",), ("global",)):
        with pytest.raises(PolicyConflicts) as refused:
            point.apply(tighter, accept=accept)
        names = {c.rule.name for c in refused.value.conflicts if isinstance(c, RuleStatus)}
        assert names == {"global", "zips"} - set(accept)
    conflicts = {c.rule.name: c for c in exceeded_rules(point, tighter)}
    assert conflicts["global"].spenders == ("a", "b")
    assert conflicts["zips"].spenders == ("a",)
    assert smallest_sufficient_budget(conflicts["global"]) == {"epsilon": 1.75}
    point.apply(tighter, accept=("zips", "global"))
    assert point.policy is not None
    assert point.policy.digest == tighter.digest
    assert set(point.submit(pure("c", "0.01", "zip")).exceeded_rules) == {"global", "zips"}


def test_an_accepted_name_is_a_whole_name_of_a_conflict() -> None:
    """A text was searched for names: `accept="not global"` accepted `global`."""
    point = started(GLOBAL, ZIP % "{epsilon: 2}")
    point.submit(pure("a", "1.5", "zip"))
    tighter = policy(GLOBAL.replace("2}}", "1}}"), ZIP % "{epsilon: 2}")
    head = point.head.sequence
    for accept in ("not global", "glob", ("nope",), ("global", "nope")):
        message = r"no conflict `.*`; conflicts: `global`; help: "
        with pytest.raises(OperationRejected, match=message):
            point.apply(tighter, accept=accept)
        with pytest.raises(OperationRejected, match=message):
            point.propose_policy(tighter, accept, "olga")
    assert point.head.sequence == head
    with pytest.raises(OperationRejected, match="no conflict `x`; the policy has no conflicts"):
        point.apply(policy(GLOBAL), accept="x")
    point.apply(tighter, accept="global")
    assert point.head.sequence == head + 1


@pytest.mark.parametrize("budget", ["epsilon: %s, delta: 0", "rho: %s", "epsilon: %s"])
def test_the_smallest_sufficient_budget_is_enough_and_one_quantum_less_is_not(budget: str) -> None:
    def rule(amount: str) -> str:
        text = "{" + budget % amount + "}"
        return f"  - {{name: p, kind: custom, when: always, unit: user, budget: {text}}}\n"

    point = started(rule("30"))
    for number in range(3):
        point.import_past(body(f"r{number}", mechanism(kind="laplace", scale="0.7")))
    conflict = exceeded_rules(point, policy(rule("0.1")))[0]
    (least,) = smallest_sufficient_budget(conflict).values()
    assert least is not None
    exact = Fraction(repr(least))
    below = f"{float(exact - Fraction(2, 10**12)):.15f}"
    assert point.conflicts(policy(rule(below)))
    assert not point.conflicts(policy(rule(repr(least))))


def test_a_rule_that_is_no_longer_pruned_has_its_full_balance() -> None:
    narrow = ZIP % "{epsilon: 2}"
    point = started(GLOBAL, narrow)
    assert [b.rule.name for b in point.budgets()] == ["global"]
    point.submit(pure("a", "1.5", "zip"))
    point.apply(policy(GLOBAL.replace("2}}", "9}}"), narrow))
    spent = {b.rule.name: b.spent for b in point.budgets()}
    half_spent = {"epsilon": 1.5, "delta": 0.0}
    assert spent == {"global": half_spent, "zips": half_spent}
    assert point.submit(pure("b", "1", "zip")).exceeded_rules == ("zips",)


def test_an_import_is_charged_regardless_of_the_budget() -> None:
    point = started()
    point.import_past(pure("old", "7"))
    point.import_past(pure("old", "7"))
    assert point.budgets()[0].spent == {"epsilon": 7.0, "delta": 0.0}
    assert not point.submit(pure("new", "0.1")).allowed
    with pytest.raises(OperationRejected, match="imported"):
        point.submit(pure("old", "7"))


def test_relabelling_moves_a_charge_and_keeps_the_mechanisms() -> None:
    point = started(GLOBAL, ZIP % "{epsilon: 1}")
    point.submit(pure("a", "1", "zip"))
    with pytest.raises(OperationRejected, match="mechanisms"):
        point.relabel(pure("a", "0.5", "views"), because="cheaper")
    with pytest.raises(OperationRejected, match="no release"):
        point.relabel(pure("b", "1"), because="?")
    corrected = pure("a", "1", "views")
    with pytest.raises(OperationRejected, match="second person"):
        point.relabel(corrected, because="it never read zip")
    number = point.propose_relabelling(corrected, because="it never read zip", by="ana").number
    point.approve(number, by="ben")
    assert {b.rule.name: b.spent["epsilon"] for b in point.budgets()} == {"global": 1, "zips": 0}
    assert point.submit(pure("a", "1", "zip")).replayed


def test_a_new_unit_charges_old_releases_through_group_privacy() -> None:
    point = started("  - {name: d, kind: custom, when: always, unit: user-day, budget: {rho: 1}}\n")
    days = {"time": {"from": "2026-01-30", "to": "2026-02-02"}, "unit": "user-day"}
    point.submit(body("r", {**mechanism(rho="0.01"), **days}))
    added = policy("  - {name: u, kind: custom, when: always, unit: user, budget: {rho: 0.15}}\n")
    conflict = exceeded_rules(point, added)[0]
    assert conflict.spent == {"rho": 0.16}  # four days, squared
    static = policy("  - {name: u, kind: custom, when: always, unit: user, budget: {rho: 999}}\n")
    point.import_past(body("static", {**mechanism(rho="0.01"), "unit": "user-day"}))
    assert exceeded_rules(point, static)[0].spent == {"rho": None}  # unknown: infinite


def test_an_unresolvable_release_is_charged_to_every_rule() -> None:
    point = started()
    point.submit(pure("a", "0.1", "zip"))
    without_zip = policy(GLOBAL, head=HEAD.replace("zip: {risk: high}, ", ""))
    assert [c.spent["epsilon"] for c in exceeded_rules(point, without_zip)] == [None]


def test_the_ledger_contains_release_bodies_and_no_balance() -> None:
    store = MemoryStore()
    started(store=store).submit(pure("a", "0.1"))
    event = from_bytes(list(store.records_after(0))[-1].payload)
    assert isinstance(event, ReleaseDecided)
    assert event.body["mechanisms"][0]["mechanism"]["epsilon"] == Fraction(1, 10)
