"""A case → the outcome of each of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpolicy.cases.case import Case, Expected, Step
from dpolicy.errors import PolicyRejected
from dpolicy.language.diagnostics import Diagnostic
from dpolicy.language.source import Word
from dpolicy.rules.compiler import CompiledPolicy, load_policy
from dpolicy.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step went; `problem` is None if it went as expected."""

    place: str
    step: str
    problem: str | None


def run_case(case: Case) -> Iterator[Outcome]:
    """Take every step; one that fails does not stop the others."""
    for number, step in enumerate(case.steps, 1):
        path = case.file.parent / (step.policy or case.policy)
        problems = [problem for problem in _problems(path, step) if problem]
        yield Outcome(str(step.span), f"step {number} ({step.action})", "; ".join(problems) or None)


def _problems(path: Path, step: Step) -> list[str | None]:
    try:
        compiled = load_policy(path)
        found = list(compiled.warnings)
    except PolicyRejected as error:
        compiled = None
        found = [d for d in error.diagnostics if isinstance(d, Diagnostic)]
    except OSError as error:
        return [f"{path}: {error.strerror}"]
    return [_codes(step, found), *(_rules(step.expected, compiled) if compiled else [])]


def _codes(step: Step, found: list[Diagnostic]) -> str | None:
    """Where codes are expected, exactly those; everywhere else at least no errors."""
    wanted = step.expected.diagnostics
    codes = sorted({d.code for d in found})
    errors = [d for d in found if d.severity == "error"]
    if wanted is None:
        return f"the policy is rejected: {errors[0]}" if errors else None
    if sorted(set(wanted)) != codes:
        return f"expected {', '.join(sorted(wanted))}, found {', '.join(codes) or 'nothing'}"
    return None


def _rules(expected: Expected, compiled: CompiledPolicy) -> list[str | None]:
    every = list(compiled.all_rules)
    kept = [rule for rule, witness in every if witness is None]
    problems: list[str | None] = []
    if expected.total is not None and compiled.total != expected.total:
        problems.append(f"expected {expected.total} rules in all, found {compiled.total}")
    if isinstance(expected.kept, int):
        if expected.kept != len(kept):
            problems.append(f"expected {expected.kept} rules to be kept, found {len(kept)}")
    elif expected.kept is not None:
        problems += _kept(expected.kept, every)
    if expected.pruned is not None:
        problems += _pruned(expected.pruned, every)
    return problems


def _kept(names: Sequence[str], every: list[tuple[Rule, Rule | None]]) -> list[str | None]:
    problems: list[str | None] = []
    for rule, witness in every:
        wanted = any(_is(name, rule) for name in names)
        if wanted and witness is not None:
            problems.append(f"`{_full(rule)}` is not kept, implied by `{_full(witness)}`")
        if witness is None and not wanted:
            problems.append(f"`{_full(rule)}` is kept")
    return problems + _unknown(names, every)


def _unknown(names: Iterable[str], every: list[tuple[Rule, Rule | None]]) -> list[str | None]:
    return [f"there is no rule `{n}`" for n in names if not any(_is(n, r) for r, _ in every)]


def _pruned(names: Mapping[Word, Word], every: list[tuple[Rule, Rule | None]]) -> list[str | None]:
    problems: list[str | None] = []
    for rule, witness in every:
        wanted = [by for name, by in names.items() if _is(name, rule)]
        if witness is None and wanted:
            problems.append(f"`{_full(rule)}` is not pruned")
        if witness is not None and not wanted:
            problems.append(f"`{_full(rule)}` is pruned, implied by `{_full(witness)}`")
        if witness is not None and wanted and not _is(wanted[0], witness):
            problems.append(f"`{_full(rule)}` is implied by `{_full(witness)}`, not `{wanted[0]}`")
    return problems + _unknown(names, every)


def _is(name: str, rule: Rule) -> bool:
    """A rule by its name, in every unit, or as `name @ unit` in one."""
    return name in (rule.name, _full(rule))


def _full(rule: Rule) -> str:
    return f"{rule.name} @ {rule.unit}"
