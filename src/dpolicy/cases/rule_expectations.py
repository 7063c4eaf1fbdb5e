"""Comparison of the compiled rules of a policy with the expectation of a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dpolicy.cases.case_file import Expectation
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule import Rule
from dpolicy.text.yaml_reader import LocatedText

#: Every rule with its witness, or None if the rule is kept.
RulesWithWitness = Sequence[tuple[Rule, Rule | None]]


def check_rule_expectations(expected: Expectation, compiled: CompiledPolicy) -> list[str]:
    """Return all differences. An expectation names a rule by `name`, in every unit, or by
    `name @ unit`.
    """
    rules = list(compiled.all_rules)
    problems = []
    if expected.total is not None and compiled.rule_count != expected.total:
        problems.append(f"expected {expected.total} rules in total, got {compiled.rule_count}")
    if isinstance(expected.kept, int):
        if expected.kept != compiled.kept_count:
            problems.append(f"expected {expected.kept} kept rules, got {compiled.kept_count}")
    elif expected.kept is not None:
        problems += _check_kept(expected.kept, rules)
    if expected.pruned is not None:
        problems += _check_pruned(expected.pruned, rules)
    return problems


def _check_kept(names: Sequence[str], rules: RulesWithWitness) -> list[str]:
    problems = []
    for rule, witness in rules:
        is_expected = any(_is_name(name, rule) for name in names)
        if is_expected and witness is not None:
            problems.append(f"`{_full_name(rule)}` is implied by `{_full_name(witness)}`, not kept")
        if witness is None and not is_expected:
            problems.append(f"`{_full_name(rule)}` is kept")
    return problems + _check_names(names, rules)


def _check_pruned(names: Mapping[LocatedText, LocatedText], rules: RulesWithWitness) -> list[str]:
    problems = []
    for rule, witness in rules:
        expected = [by for name, by in names.items() if _is_name(name, rule)]
        full_name = _full_name(rule)
        if witness is None:
            if expected:
                problems.append(f"`{full_name}` is not pruned")
        elif not expected:
            problems.append(f"`{full_name}` is pruned, implied by `{_full_name(witness)}`")
        elif not _is_name(expected[0], witness):
            witness_name = _full_name(witness)
            problems.append(f"`{full_name}` is implied by `{witness_name}`, not `{expected[0]}`")
    return problems + _check_names(names, rules)


def _check_names(names: Iterable[str], rules: RulesWithWitness) -> list[str]:
    return [
        f"unknown rule `{name}`"
        for name in names
        if not any(_is_name(name, rule) for rule, _ in rules)
    ]


def _is_name(name: str, rule: Rule) -> bool:
    return name in (rule.name, _full_name(rule))


def _full_name(rule: Rule) -> str:
    return f"{rule.name} @ {rule.unit}"
