"""With `collapse`, merged blocks of a unit must stay inside the blocks of a larger unit (P9)."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.rules.tightening import only_tightens
from dpolicy.text.yaml_reader import Source

PERIODS = {
    "user-day": "day",
    "user-week": "week",
    "user-month": "month",
    "user-quarter": "quarter",
    "user-31": "sliding 31 days",
    "user-366": "sliding 366 days",
    "user-30": "30 days",
}


def policy(into: str, *units: str) -> CompiledPolicy:
    """Compile one rule of ε 1 for each unit; `into` is empty for no collapse."""
    collapse = f", collapse: {{after: 24 months, into: {into}}}" if into else ""
    lines = ["dpolicy: 1", f"accounting: {{delta: 0, relation: change{collapse}}}", "units:"]
    lines += ["  user: {}", *(f"  {name}: {{period: {text}}}" for name, text in PERIODS.items())]
    lines += ["schema: {attributes: {views: {risk: low}}}", "policies:"]
    rule = "  - {name: r%d, kind: custom, when: always, unit: %s, budget: {epsilon: 1}}"
    lines += [rule % (number, unit) for number, unit in enumerate(units)]
    return compile_policy([Source("policy.yaml", "\n".join(lines))])


def decisions(compiled: CompiledPolicy, *days: str) -> list[bool]:
    """Return the decisions on one release of ε 1 for each day, all submitted in 2023."""
    point = DecisionPoint(MemoryStore(), lambda: datetime(2023, 6, 1, tzinfo=UTC))
    point.apply(compiled)
    return [
        point.submit(
            {
                "release": f"r{number}",
                "mechanisms": [
                    {
                        "mechanism": {"kind": "declared", "epsilon": Fraction(1)},
                        "unit": "user-day",
                        "relation": "change",
                        "time": {"from": day, "to": day},
                    }
                ],
            }
        ).allowed
        for number, day in enumerate(days)
    ]


def kept(compiled: CompiledPolicy) -> list[str]:
    """Return the units of the kept rules."""
    return [rule.unit for rule in compiled.rules]


@pytest.mark.parametrize(
    ("into", "unit", "added", "second"),
    [
        ("month", "user-day", "user-week", "2020-01-20"),
        ("year", "user-month", "user-31", "2020-06-20"),
    ],
)
def test_an_added_rule_allows_nothing_that_was_denied(
    into: str, unit: str, added: str, second: str
) -> None:
    before, after = policy(into, unit), policy(into, unit, added)
    assert decisions(before, "2020-01-01", second) == [True, False]
    assert decisions(after, "2020-01-01", second) == [True, False]
    assert kept(after) == [unit, added]
    assert only_tightens(before, after)


@pytest.mark.parametrize(
    ("into", "unit", "larger"),
    [
        ("", "user-day", "user-week"),
        ("", "user-month", "user-31"),
        ("year", "user-day", "user-month"),  # both are merged
        ("month", "user-day", "user-quarter"),  # a month lies inside one quarter
        ("month", "user-day", "user-31"),  # every month lies inside one window of 31 days
        ("year", "user-month", "user-366"),
        ("month", "user-day", "user"),
        ("month", "user-30", "user-31"),  # windows are never merged
    ],
)
def test_a_rule_is_implied_if_its_merged_blocks_stay_inside(
    into: str, unit: str, larger: str
) -> None:
    assert kept(policy(into, unit, larger)) == [larger]


def test_the_same_unit_is_ordered_by_budget_alone() -> None:
    compiled = policy("month", "user-week", "user-week", "user-day")
    assert kept(compiled) == ["user-week", "user-day"]
