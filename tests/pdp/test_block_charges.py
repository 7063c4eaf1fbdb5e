"""Regression tests of charges to blocks: fold, collapse, commits, and granularities."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest

from dpolicy.balances import balances
from dpolicy.balances.balances import Balances
from dpolicy.balances.granularities import granularities_for
from dpolicy.balances.partition_space import build_partition_space
from dpolicy.errors import PolicyRejected, ReleaseRejected
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp import rule_status
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.predicates.expression import reads_attribute
from dpolicy.releases.body import release_from_body
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

HEAD = """
dpolicy: 1
accounting: {delta: 1e-7, relation: change, COLLAPSE}
units: {user: {}, user-day: {period: day}}
schema:
  attributes: {p: {risk: low}, views: {risk: low}}
  partitions: {p: {from: 0, to: 9999, OF}, q: {from: 0, to: 9999}, r: {from: 0, to: 9999}}
policies:
"""
DAYS = "  - {name: day, kind: custom, when: always, unit: user-day, budget: {rho: 1}}\n"
COLLAPSE = "collapse: {after: 24 months, into: year}"


def policy(rules: str, collapse: str = "uncovered: deny", of: str = "stable: true") -> Any:
    text = HEAD.replace("COLLAPSE", collapse).replace("OF", of) + rules
    return compile_policy([Source("p.yaml", text)])


def body(name: str, rho: str, **more: Any) -> dict[str, Any]:
    mechanism = {"mechanism": {"kind": "declared", "rho": Fraction(rho)}, "unit": "user", **more}
    return {"release": name, "mechanisms": [mechanism]}


def on(day: str) -> dict[str, str]:
    return {"from": day, "to": day}


class Clock:
    def __init__(self, now: str) -> None:
        self.at(now)

    def at(self, now: str) -> None:
        self.now = datetime.fromisoformat(now).replace(tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def started(compiled: CompiledPolicy, now: str) -> tuple[DecisionPoint, Clock, MemoryStore]:
    clock, store = Clock(now), MemoryStore()
    point = DecisionPoint(store, clock)
    point.apply(compiled)
    return point, clock, store


def spent(point: DecisionPoint) -> list[Any]:
    return [(b.rule.name, b.spent, b.holds) for b in point.budgets()]


def again(store: MemoryStore, clock: Clock) -> DecisionPoint:
    return DecisionPoint(MemoryStore(list(store.records_after(0))), clock)


def test_a_partition_of_a_unit_with_a_period_is_rejected() -> None:
    with pytest.raises(PolicyRejected) as refused:
        policy(DAYS, of="of: user-day")
    assert "P017" in str(refused.value)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_void_is_not_subtracted_twice(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = "  - {name: all, kind: custom, when: always, unit: user, budget: {rho: 10}}\n"
    point, clock, store = started(policy(rule), "2026-01-01")
    assert point.submit(body("a", "4")).allowed
    assert point.reserve(body("b", "4")).allowed
    point.budgets()
    point.void("b", "nothing was read")
    real = Balances.subtract

    def interrupted(self: Balances, *arguments: Any) -> bool:
        real(self, *arguments)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Balances, "subtract", interrupted)
        with pytest.raises(error):
            point.check(body("c", "1"))
    assert spent(point) == spent(again(store, clock)) == [("all", {"rho": 4.0}, True)]


def test_any_import_leaves_the_ledger_readable() -> None:
    rule = "  - {name: p, kind: attribute, unit: user, budgets: {low: {rho: 9}}}\n"
    point, clock, store = started(policy(rule + DAYS), "2026-01-01")
    rows = [
        {"p": {"from": n, "to": n}, "qr"[n % 2]: {"from": 9 * n, "to": 9 * n}} for n in range(300)
    ]
    point.import_past(body("wild", "0.1", where=rows))
    assert point.submit(body("tiny", "0.001", where={"p": {"from": 1, "to": 1}})).allowed
    assert spent(point) == spent(again(store, clock))
    point.apply(policy(DAYS))


def test_a_read_does_not_change_a_decision() -> None:
    answers = []
    for looks in (False, True):
        point, clock, store = started(policy(DAYS, COLLAPSE), "2025-12-30")
        assert point.submit(body("a", "0.9", time=on("2023-03-01"))).allowed
        assert point.submit(body("b", "0.5", time=on("2023-05-01"))).allowed
        if looks:
            point.budgets()
        clock.at("2026-01-02")
        checked = point.check(body("c", "0.2", time=on("2023-07-01"))).allowed
        answers.append(point.submit(body("c", "0.2", time=on("2023-07-01"))).allowed)
        assert checked == answers[-1]
        assert not audit_ledger(store).findings
        assert spent(point) == spent(again(store, clock))
    assert answers == [False, False]


def test_a_refused_request_does_not_advance_the_month() -> None:
    point, clock, store = started(policy(DAYS, COLLAPSE), "2025-12-30")
    assert point.submit(body("a", "0.9", time=on("2023-03-01"))).allowed
    clock.at("2026-01-01")
    with pytest.raises(ReleaseRejected):
        point.submit(body("b", "0.1", attributes=["unknown"]))
    clock.at("2025-12-31")
    assert point.submit(body("c", "0.9", time=on("2023-07-01"))).allowed
    assert not audit_ledger(store).findings
    assert spent(point) == spent(again(store, clock))


def test_a_reservation_can_be_committed_in_a_later_month() -> None:
    point, clock, store = started(policy(DAYS, COLLAPSE), "2025-12-31T12:00:00")
    assert point.submit(body("a", "1", time=on("2023-03-01"))).allowed
    assert point.reserve(body("b", "1", time=on("2023-05-01"))).allowed
    clock.at("2026-01-01T06:00:00")
    point.commit("b", used=body("b", "0.5", time=on("2023-05-01")))
    ((_, used, holds),) = spent(point)
    assert holds and used == {"rho": 1.0}
    (balance,) = point.budgets()
    assert balance.location == {"p": 0, "q": 0, "r": 0, "time": "2023"}
    assert set(balance.spenders) == {"a", "b"}
    assert spent(point) == spent(again(store, clock))


def test_a_release_object_is_parsed_from_its_body() -> None:
    point, _, _ = started(policy(DAYS), "2026-01-01")
    small, large = (
        release_from_body(body("r", rho, time=on("2026-01-01"))) for rho in ("0.1", "50")
    )
    assert not point.submit(replace(small, body=large.body)).allowed


def test_many_mechanisms_get_no_counter_offers() -> None:
    point, _, _ = started(policy(DAYS), "2026-01-01")
    many = [{**body("x", "1")["mechanisms"][0], "where": {"p": {"from": 0, "to": 9}}}] * 1000
    decision = point.submit({"release": "many", "mechanisms": many})
    assert not decision.allowed and decision.counter_offers == ()


def test_mechanisms_that_overlap_in_too_many_ways_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point, _, store = started(policy(DAYS), "2026-01-01")
    crossing = [
        {**body("x", "0.001")["mechanisms"][0], "where": {"p": {"from": n, "to": n + 20}}}
        for n in range(20)
    ]
    assert point.submit({"release": "fine", "mechanisms": crossing}).allowed
    monkeypatch.setattr(balances, "MAX_DISJOINT_CHARGES", 30)
    with pytest.raises(ReleaseRejected, match="R008"):
        point.submit({"release": "crossing", "mechanisms": crossing})
    assert len(list(store.records_after(0))) == 2  # nothing of it is written


def test_a_batch_is_decided_and_recorded_with_one_timestamp() -> None:
    """A month that ends between decision and record must not make them differ."""
    store = MemoryStore()
    ticks = iter(range(10**6))

    def clock() -> datetime:
        return datetime(2025, 12, 31, tzinfo=UTC) if next(ticks) % 2 == 0 else NEW_YEAR

    point = DecisionPoint(store, clock)
    point.apply(policy(DAYS, COLLAPSE))
    for number in range(6):
        point.submit(body(f"r{number}", "0.4", time=on(f"2023-0{number + 1}-01")))
    assert not audit_ledger(store).findings


NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


MANY = """
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}, user-day: {period: day}, moved: {relation: replace}}
schema:
  attributes: {p: {risk: low}, q: {risk: low}, views: {risk: low}}
  labels: {l: {values: [a, b], default: a}}
  partitions:
    p: {from: 0, to: 9, of: user}
    q: {from: 0, to: 9, of: user}
    r: {from: 0, to: 9, of: user, stable: false}
policies:
  - {name: per, kind: attribute, units: [user, user-day, moved], budgets: {low: {rho: 1}}}
  - name: first
    kind: extension
    settings:
      - {name: some, when: '"p" in attributes', budget: same}
      - {name: any, when: always, budget: {times: 2}}
  - name: second
    kind: extension
    settings:
      - {name: some, when: '"q" in attributes && labels.l == "a"', budget: same}
      - {name: label, when: 'labels.l == "a"', budget: {times: 2}}
      - {name: any, when: always, budget: {times: 3}}
"""


def test_the_granularity_of_a_rule_depends_on_the_rule_only() -> None:
    compiled = compile_policy([Source("p.yaml", MANY)])
    rules = compiled.cumulative.rules
    layout = granularities_for(compiled, build_partition_space(compiled), rules)
    names, units = ("p", "q", "r"), compiled.checked_policy_set.vocabulary.units
    for rule in rules:
        unit = units[rule.unit]
        reads = {n for n in names if any(reads_attribute(p, n) for p in rule.predicates)}
        splits = set() if unit.name == "moved" else {"p", "q"} - reads
        frame = layout.distinct[layout.position_by_rule[rule.number]]
        assert {names[n] for n in frame.partitions} == splits, rule.name
        assert frame.period == (None if unit.name == "moved" else unit.period)
    assert len(layout.distinct) > 3


def test_releases_that_exceed_a_delta_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exceeded rules come first when only a few rules are reported."""
    monkeypatch.setattr(rule_status, "MAX_RULES_WITH_SPENDERS", 1)
    rules = (
        "  - {name: full, kind: custom, when: always, unit: user,"
        " budget: {epsilon: 1.01, delta: 0.1}}\n"
        "  - {name: leaky, kind: custom, when: always, unit: user, budget: {epsilon: 9}}\n"
    )
    point, _, _ = started(policy(rules), "2026-01-01")
    leaking = {"kind": "declared", "epsilon": 1, "delta": Fraction(1, 10**3)}
    point.import_past({"release": "leak", "mechanisms": [{"mechanism": leaking, "unit": "user"}]})
    statuses = {b.rule.name: (b.holds, b.spenders) for b in point.budgets()}
    assert statuses == {"full": (True, ()), "leaky": (False, ("leak",))}
