"""A case → the outcome of each of its steps, on a ledger of its own in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpolicy.cases.case_file import Case, CaseStep, Expectation
from dpolicy.cases.rule_expectations import check_rule_expectations
from dpolicy.errors import DPolicyError, PolicyConflicts, PolicyRejected
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import load_policy
from dpolicy.text.diagnostics import Diagnostic


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """How a step went; `problem` is None if it went as expected."""

    place: str
    step: str
    problem: str | None


def run_case(case: Case) -> Iterator[StepOutcome]:
    """Take every step; one that fails does not stop the others."""
    point: DecisionPoint | None = None
    for number, step in enumerate(case.steps, 1):
        problems: list[str]
        if step.action in ("rules", "check"):
            path = case.file.parent / (str(step.subject) if step.subject else case.policy)
            problems = _policy_problems(path, step.expected)
        else:
            try:
                point = point or _started(case)
                problems = _ledger_problems(point, step, case.file.parent)
            except (DPolicyError, OSError) as error:
                problems = [str(error)]
        yield StepOutcome(
            str(step.span), f"step {number} ({step.action})", "; ".join(problems) or None
        )


def _started(case: Case) -> DecisionPoint:
    point = DecisionPoint(MemoryStore())
    point.apply(case.file.parent / case.policy)
    return point


def _policy_problems(path: Path, expected: Expectation) -> list[str]:
    try:
        compiled = load_policy(path)
        found = list(compiled.warnings)
    except PolicyRejected as error:
        return _code_problems(expected, [d for d in error.diagnostics if isinstance(d, Diagnostic)])
    except OSError as error:
        return [f"{path}: {error.strerror or error}"]
    return _code_problems(expected, found) + check_rule_expectations(expected, compiled)


def _code_problems(expected: Expectation, diagnostics: list[Diagnostic]) -> list[str]:
    """Where codes are expected, exactly those; everywhere else at least no errors."""
    wanted = expected.diagnostics
    codes = sorted({d.code for d in diagnostics})
    errors = [d for d in diagnostics if d.severity == "error"]
    if wanted is None:
        return [f"the policy is rejected: {errors[0]}"] if errors else []
    if sorted(set(wanted)) != codes:
        return [f"expected {', '.join(sorted(wanted))}, found {', '.join(codes) or 'nothing'}"]
    return []


def _ledger_problems(point: DecisionPoint, step: CaseStep, folder: Path) -> list[str]:
    subject = step.subject
    if step.action == "apply":
        return _apply_problems(point, folder / str(subject), step)
    if isinstance(subject, Release):
        if step.action == "import":
            point.import_past(subject)
            return []
        ask = point.reserve if step.action == "reserve" else point.submit
        decision = ask(subject)
        return _decision_problems(decision.allowed, decision.broken, step.expected)
    if step.action == "commit":
        point.commit(str(subject))
    else:
        point.void(str(subject), because="a step of a case")
    return []


def _decision_problems(allowed: bool, broken: Sequence[str], expected: Expectation) -> list[str]:
    said = "allow" if allowed else f"deny: {', '.join(broken) or 'no rule is broken'}"
    if expected.allow is not None and expected.allow != allowed:
        return [f"expected {'allow' if expected.allow else 'deny'}, found {said}"]
    if expected.deny is not None and set(expected.deny) != set(broken):
        return [f"expected deny: {', '.join(expected.deny)}; found {said}"]
    return []


def _apply_problems(point: DecisionPoint, path: Path, step: CaseStep) -> list[str]:
    wanted = set(step.expected.conflicts or ())
    try:
        point.apply(path, accept=step.accept)
    except PolicyConflicts as error:
        found = {c.rule.name for c in error.conflicts if isinstance(c, RuleStatus)}
        return [] if found == wanted else [f"conflicts found: {', '.join(sorted(found))}"]
    return [f"expected conflicts: {', '.join(sorted(wanted))}; found none"] if wanted else []
