"""Lines of rules are a partition of the rules, and equal those of the naive twin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from tests.properties.pruning_harness import subjects
from tests.reference import rule_lines as twin
from tests.rules.hospital import compile_hospital

from dpolicy.rules.groups import rule_lines
from dpolicy.rules.groups.rule_lines import RuleLine, group_rules, setting_columns, sort_lines
from dpolicy.rules.rule import Rule

SEEDS = range(12)


def samples(seed: int) -> list[list[Rule]]:
    """Return the rules of random sections: all, the kept ones, and a random part."""
    random, result = Random(seed), []
    for subject in subjects(seed, 6):
        rules = list(subject.rules)
        kept = [rule for rule in rules if subject.pruned.kept[rule.number]]
        result += [rules, kept, [rule for rule in rules if random.random() < 0.7]]
    return result


def group(
    rules: Sequence[Rule], row_axes: int = 0, *, join_units: bool = True
) -> list[RuleLine[Rule]]:
    """Group rules by their budgets."""
    return group_rules(
        rules, lambda rule: rule, lambda rule: rule.budget, row_axes, join_units=join_units
    )


def problems(rules: Sequence[Rule], row_axes: int = 0) -> list[str]:
    """Return in what the lines of rules are wrong, by comparison with the list of rules."""
    result = []
    for join_units in (True, False):
        lines = group(rules, row_axes, join_units=join_units)
        listed = Counter(id(rule) for line in lines for rule in line.items)
        if listed != Counter(map(id, rules)):
            result.append("the lines are no partition of the rules")
        positions = {id(rule): position for position, rule in enumerate(rules)}
        found = {frozenset(positions[id(rule)] for rule in line.items) for line in lines}
        if found != twin.lines(rules, row_axes, join_units=join_units):
            result.append("the lines differ from those of the twin")
        result += [problem for line in lines for problem in line_problems(line, row_axes)]
    return result


def line_problems(line: RuleLine[Rule], row_axes: int) -> list[str]:
    """Return in what one line disagrees with its rules."""
    result = []
    for column, cell in line.cells.items():
        if len({rule.budget for rule in cell}) != 1:
            result.append("a cell has several budgets")
        if any(tuple(s.name for s in rule.settings[row_axes:]) != column for rule in cell):
            result.append("a rule is in the wrong column")
        if len(cell) != max(len(line.members), 1) * len(line.units):
            result.append("a cell does not have one rule per member and unit")
    if {rule.unit for rule in line.items} != set(line.units):
        result.append("the units are wrong")
    if {rule.base.subject for rule in line.items} - {""} != set(line.members):
        result.append("the members are wrong")
    key = (line.key.each_release, line.key.policy, line.key.risk, line.key.level, line.key.settings)
    if any(twin.common(rule, row_axes) != key for rule in line.items):
        result.append("the key is wrong")
    return result


@pytest.mark.parametrize("seed", SEEDS)
def test_lines_are_the_partition_of_the_naive_twin(seed: int) -> None:
    for rules in samples(seed):
        axes = max((len(rule.settings) for rule in rules), default=0)
        for row_axes in range(axes + 1):
            assert not problems(rules, row_axes)


def test_the_samples_have_lines_with_several_rules_and_with_several_units() -> None:
    lines = [line for seed in SEEDS for rules in samples(seed) for line in group(rules)]
    assert any(len(line.members) > 1 for line in lines)
    assert any(len(line.units) > 1 and line.members for line in lines)
    assert any(len(line.cells) > 1 for line in lines)


@pytest.mark.parametrize("omitted", ["unit", "cells", "level"])
def test_a_broken_grouping_is_detected(omitted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary: a grouping that confuses units, budgets or membership levels has problems."""
    original = rule_lines._rows

    def broken(items: Sequence[Rule], _: object, row_axes: int) -> list[rule_lines._Row[Rule]]:
        rows = []
        for row in original(items, lambda item: item, row_axes):
            key, base, cells = row.key, row.base, dict(row.cells)
            if omitted == "cells" and len(cells) > 1:
                cells.popitem()
            if omitted == "level":
                key = rule_lines.LineKey(key.policy, key.risk, "", key.settings, key.each_release)
            if omitted == "unit":
                base = replace(base, unit="user")
            rows.append(rule_lines._Row(key, base, cells))
        return rows

    monkeypatch.setattr(rule_lines, "_rows", broken)
    assert any(problems(rules) for seed in SEEDS for rules in samples(seed))


def test_the_rules_of_a_hospital_fit_into_a_dozen_lines() -> None:
    policy = compile_hospital()
    assert (policy.kept_count, policy.rule_count) == (269, 349)
    lines = group(policy.rules)
    assert len(lines) == 12
    assert sum(len(line.items) for line in lines) == policy.kept_count
    first = next(line for line in lines if line.key.policy == "everything")
    assert first.units == ("patient", "patient-month", "patient-day")
    assert list(first.cells) == setting_columns(policy.cumulative.rules.axes)


def test_lines_are_sorted_by_policy_and_by_falling_risk() -> None:
    policy = compile_hospital()
    lines = sort_lines(group(policy.rules), policy.policy_set.risk_levels)
    risks = [line.key.risk for line in lines if line.key.policy == "per-attribute"]
    assert risks == ["high", "medium", "low"]
    policies = [line.key.policy for line in lines]
    assert list(dict.fromkeys(policies)) == [
        "everything",
        "per-attribute",
        "per-category",
        "release-cap",
    ]
    levels = [line.key.level for line in lines if line.key.risk == "medium" and line.key.level]
    assert levels == ["member", "strong", "weak"]
