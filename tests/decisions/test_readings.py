"""Statements with two readings: dpolicy refuses them, or takes the reading that costs more."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pdp.builders import body, mechanism

from dpolicy.errors import PolicyRejected
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source


def compile_units(units: str, unit: str, more: str = "", **options: Any) -> CompiledPolicy:
    """Compile a policy with these units and one rule of ε 1 on one of them."""
    text = (
        f"dpolicy: 1\naccounting: {{delta: 1e-7}}\nunits: {{{units}}}\n{more}policies:\n"
        f"  - {{name: g, kind: custom, when: always, unit: {unit}, budget: {{epsilon: 1}}}}\n"
    )
    return compile_policy([Source("policy.yaml", text)], **options)


def find_entity(units: str, unit: str) -> str:
    """Return the entity of a unit."""
    return compile_units(units, unit).units[unit].entity


# F2: the entity of a unit


@pytest.mark.parametrize(
    "units",
    [
        "user-day: {period: day}, household-month: {period: month}",
        "user: {}, user-day: {period: day}, household-month: {period: month}",
        "household-month: {period: month}",
        "person: {}, household-month: {period: month}",
    ],
)
def test_a_unit_named_after_an_unknown_entity_is_an_error(units: str) -> None:
    with pytest.raises(PolicyRejected, match="P018") as rejected:
        compile_units(units, "household-month")
    assert "add a unit `household`, or state `of`" in str(rejected.value)


def test_a_user_day_beside_other_entities_needs_the_unit_user() -> None:
    with pytest.raises(PolicyRejected, match="P018") as rejected:
        compile_units("household: {}, user-day: {period: day}", "user-day")
    assert "add a unit `user`, or state `of` with one of `household`" in str(rejected.value)


@pytest.mark.parametrize(
    ("units", "unit", "entity"),
    [
        ("user-day: {period: day}", "user-day", "user"),
        ("user-day: {period: day}, user-sunday-week: {period: week}", "user-sunday-week", "user"),
        ("household: {}, household-month: {period: month}", "household-month", "household"),
        ("user: {}, weekly-slice: {period: week, of: user}", "weekly-slice", "user"),
        ("slice: {period: day}", "slice", "user"),
        ("rider: {}, slice: {period: day}", "slice", "rider"),
    ],
)
def test_the_entity_is_stated_or_in_the_name(units: str, unit: str, entity: str) -> None:
    assert find_entity(units, unit) == entity


def test_a_ledger_opens_although_its_policy_has_an_error_of_a_newer_version() -> None:
    """Older versions read `household-month` as a month of a user; now its loss is unbounded."""
    units = "user-day: {period: day}, household-month: {period: month}"
    store = MemoryStore()
    point = DecisionPoint(store)
    point.apply(compile_units(units, "household-month", tolerated={"P018"}))
    release = body("r", {**mechanism(epsilon="0.5"), "unit": "user-day"})
    for reader in (point, DecisionPoint(store)):
        assert not reader.check(release).allowed
