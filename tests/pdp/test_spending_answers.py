"""Answers about spending: JSON, errors, and agreement with the balances of all rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpolicy import DecisionPoint
from dpolicy.errors import InvalidValue, OperationRejected, PolicyRejected
from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import link_record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

#: A ledger of format 1, with the authors beside the releases.
GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "ledger-1.json"
POLICY = """
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}, user-month: {period: month}}
schema:
  attributes: {zip: {risk: high}, views: {risk: low}}
  labels: {team: {values: [ads, maps]}}
  partitions: {country: {values: [AT, CH], of: user}}
policies:
  - {name: everything, kind: custom, when: always, unit: user, budget: {rho: 4}}
  - {name: zips, kind: custom, when: '"zip" in attributes', unit: user, budget: {rho: 6}}
  - {name: tracked, kind: custom, when: always, unit: user-month, budget: unlimited}
"""


def release(name: str, sigma: int, **fields: Any) -> dict[str, Any]:
    mechanism = {"mechanism": {"kind": "gaussian", "sigma": sigma}, "unit": "user", **fields}
    return {"release": name, "by": "ana", "mechanisms": [mechanism]}


@pytest.fixture
def point() -> DecisionPoint:
    """A ledger with three releases."""
    point = DecisionPoint(":memory:")
    point.apply(compile_policy([Source("policy.yaml", POLICY)]))
    point.submit(release("one", 5, attributes=["zip"], labels={"team": "ads"}))
    point.submit(release("two", 10, attributes=["zip"], where={"country": "CH"}))
    point.reserve(release("three", 4, attributes=["views"], where={"country": "AT"}))
    return point


def test_balances_of_all_rules_equal_spending(point: DecisionPoint) -> None:
    statuses = {status.name: status for status in point.budgets(pruned=True)}
    assert list(statuses) == ["everything", "zips", "tracked"]
    witness = statuses["zips"].implied_by
    assert witness is not None and witness.name == "everything"
    for name, status in statuses.items():
        spending = point.spent(rule=name)
        assert status.spent["rho"] == spending.rho and status.location == spending.location
    assert point.spent(rule="zips").rho == 0.025
    assert [status.name for status in point.budgets()] == ["everything", "tracked"]


def test_a_later_release_changes_the_balance_of_a_pruned_rule(point: DecisionPoint) -> None:
    before = {status.name: status.spent for status in point.budgets(pruned=True)}
    point.submit(release("four", 5, attributes=["zip"]))
    after = {status.name: status.spent for status in point.budgets(pruned=True)}
    assert after["zips"] == {"rho": 0.045} and before["zips"] == {"rho": 0.025}


def test_an_unknown_label_counts(point: DecisionPoint) -> None:
    spending = point.spent('labels.team == "maps"', unit="user")
    assert {share.name for share in spending.releases} == {"three"}
    assert point.spent('labels.team == "maps"', unit="user", at={"country": "CH"}).rho == 0.005


def test_the_json_of_an_answer(point: DecisionPoint) -> None:
    answer = point.spent(unit="user", limit=1).as_json()
    assert answer["unit"] == "user" and answer["at"] == {"country": "AT"}
    assert answer["spent"]["rho"] == 0.05125 and answer["spent"]["delta"] == 1e-7
    assert answer["spent"]["pure"] is None
    assert [entry["release"] for entry in answer["releases"]] == ["three"]
    assert answer["release-count"] == 2 and answer["by"][0]["releases"] == 2
    assert set(answer["risk"]["posterior"]) >= {"0.5", "0.1", "0.01"}
    assert set(answer["risk"]["tpr"]) >= {"0.1", "0.01", "0.001"}


def test_a_voided_reservation_is_not_spent(point: DecisionPoint) -> None:
    point.void("three", because="never started", by="ana")
    assert point.spent(unit="user").location == {"country": "CH"}
    assert point.spent(unit="user", at={"country": "AT"}).rho == 0.02


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"unit": "usr"}, "unknown-unit"),
        ({"rule": "zip"}, "unknown-rule"),
        ({"when": "always", "rule": "zips"}, "misused"),
        ({"unit": "user", "at": {"city": "Bern"}}, "misused"),
    ],
)
def test_a_wrong_question_has_a_code(
    point: DecisionPoint, arguments: dict[str, Any], code: str
) -> None:
    with pytest.raises(OperationRejected) as raised:
        point.spent(**arguments)
    assert raised.value.code == code


@pytest.mark.parametrize(
    "arguments",
    [
        {"since": "yesterday"},
        {"delta": "2"},
        {"delta": "x"},
        {"delta": "1e-999999999"},  # would expand to a gigabyte of digits
        {"delta": "0e-999999999"},
        {"delta": "1e999999999"},
        {"delta": "1e-1000000"},
        {"by": [3]},
    ],
)
def test_a_wrong_value_has_a_code(point: DecisionPoint, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="P007"):
        point.spent(unit="user", **arguments)


@pytest.mark.parametrize(("limit", "listed"), [(-1, 0), (0, 0), (1, 1), (2**64, 2)])
def test_a_limit_is_any_whole_number(point: DecisionPoint, limit: int, listed: int) -> None:
    assert len(point.spent(unit="user-month", limit=limit).releases) == listed


def test_an_expression_with_an_error_is_located(point: DecisionPoint) -> None:
    with pytest.raises(PolicyRejected, match=r"--when:1:1: error P025"):
        point.spent('labels.tem == "ads"', unit="user")


def test_an_author_beside_a_release_of_an_old_ledger_counts() -> None:
    golden = json.loads(GOLDEN.read_text())
    records: list[Record] = []
    for payload in golden["records"]:
        records.append(link_record(records[-1] if records else None, payload.encode()))
    point = DecisionPoint(MemoryStore(records))
    everyone = point.spent(unit="user")
    assert {share.by: share.count for share in everyone.authors} == {"ana": 4, "officer": 1}
    for author in everyone.authors:
        own = point.spent(unit="user", by=author.by)
        assert own.epsilon == author.epsilon and own.cost == author.cost
        assert own.release_count == author.count and {s.by for s in own.releases} == {author.by}
        later = point.spent(unit="user", by=author.by, since="2026-01-01")
        assert later.epsilon == own.epsilon
    assert point.spent(unit="user", by="").release_count == 0


def test_a_scope_takes_a_bounded_number_of_steps(point: DecisionPoint) -> None:
    numbers = f"[{','.join(['1'] * 100)}]"
    nested = f"{numbers}.all(x, {numbers}.all(y, {numbers}.all(z, x + y + z > 0)))"
    assert point.spent(nested, unit="user").release_count == 2
    with pytest.raises(OperationRejected, match="12,121,200 steps"):
        point.spent(f"{nested} && {nested} && {nested} && {nested}", unit="user")


def test_the_largest_unit_is_the_default(point: DecisionPoint) -> None:
    assert point.spent().as_json() == point.spent(unit="user").as_json()
    assert point.spent().unit == "user" and point.spent(rule="tracked").unit == "user-month"


def test_units_of_which_none_is_the_largest_must_be_stated() -> None:
    units = "units: {user: {}, device: {}}"
    text = POLICY.replace("units: {user: {}, user-month: {period: month}}", units)
    point = DecisionPoint(":memory:")
    point.apply(compile_policy([Source("policy.yaml", text.replace("user-month", "device"))]))
    with pytest.raises(OperationRejected, match="none contains all others: user, device") as raised:
        point.spent()
    assert raised.value.code == "unit-required"


def test_an_unknown_author_is_noted(point: DecisionPoint) -> None:
    answer = point.spent(unit="user", by=["anna", "ana"])
    assert answer.notes == ("no recorded release has the author `anna`",)
    assert answer.rho == point.spent(unit="user").rho
    assert point.spent(unit="user", by="ana").notes == ()
