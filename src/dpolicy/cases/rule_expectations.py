"""What a case expects of rules, and a compiled policy → what is otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dpolicy.cases.case_file import Expectation
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule import Rule
from dpolicy.text.yaml_reader import LocatedText

#: Every rule with the kept one that implies it, if it is pruned.
Every = Sequence[tuple[Rule, Rule | None]]


def check_rule_expectations(expected: Expectation, compiled: CompiledPolicy) -> list[str]:
    """All that is not as expected; a rule is named by `name`, in every unit, or `name @ unit`."""
    every = list(compiled.all_rules)
    problems = []
    if expected.total is not None and compiled.rule_count != expected.total:
        problems.append(f"expected {expected.total} rules in all, found {compiled.rule_count}")
    if isinstance(expected.kept, int):
        if expected.kept != compiled.kept_count:
            problems.append(f"expected {expected.kept} kept rules, found {compiled.kept_count}")
    elif expected.kept is not None:
        problems += _kept(expected.kept, every)
    if expected.pruned is not None:
        problems += _pruned(expected.pruned, every)
    return problems


def _kept(names: Sequence[str], every: Every) -> list[str]:
    problems = []
    for rule, witness in every:
        wanted = any(_is(name, rule) for name in names)
        if wanted and witness is not None:
            problems.append(f"`{_full(rule)}` is not kept, implied by `{_full(witness)}`")
        if witness is None and not wanted:
            problems.append(f"`{_full(rule)}` is kept")
    return problems + _unknown(names, every)


def _pruned(names: Mapping[LocatedText, LocatedText], every: Every) -> list[str]:
    problems = []
    for rule, witness in every:
        wanted = [by for name, by in names.items() if _is(name, rule)]
        if witness is None and wanted:
            problems.append(f"`{_full(rule)}` is not pruned")
        if witness is not None and not wanted:
            problems.append(f"`{_full(rule)}` is pruned, implied by `{_full(witness)}`")
        if witness is not None and wanted and not _is(wanted[0], witness):
            problems.append(f"`{_full(rule)}` is implied by `{_full(witness)}`, not `{wanted[0]}`")
    return problems + _unknown(names, every)


def _unknown(names: Iterable[str], every: Every) -> list[str]:
    return [f"there is no rule `{n}`" for n in names if not any(_is(n, r) for r, _ in every)]


def _is(name: str, rule: Rule) -> bool:
    return name in (rule.name, _full(rule))


def _full(rule: Rule) -> str:
    return f"{rule.name} @ {rule.unit}"
