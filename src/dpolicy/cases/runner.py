"""Runner of cases. Each case runs on its own ledger in memory."""

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
from dpolicy.releases.redefinition import Redefinition
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import load_policy
from dpolicy.text.diagnostics import Diagnostic


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """Result of a step; `problem` is None if the result is as expected."""

    position: str
    step: str
    problem: str | None


def run_case(case: Case) -> Iterator[StepOutcome]:
    """Run every step and yield its outcome; a step that fails does not stop the case."""
    decision_point: DecisionPoint | None = None
    for number, step in enumerate(case.steps, 1):
        problems: list[str]
        if step.action in ("rules", "check"):
            path = case.file.parent / (str(step.subject) if step.subject else case.policy)
            problems = _run_policy_step(path, step.expected)
        else:
            try:
                decision_point = decision_point or _create_decision_point(case)
                problems = _run_ledger_step(decision_point, step, case.file.parent)
            except (DPolicyError, OSError) as error:
                problems = [str(error)]
        yield StepOutcome(
            str(step.span), f"step {number} ({step.action})", "; ".join(problems) or None
        )


def _create_decision_point(case: Case) -> DecisionPoint:
    decision_point = DecisionPoint(MemoryStore())
    decision_point.apply(case.file.parent / case.policy)
    return decision_point


def _run_policy_step(path: Path, expected: Expectation) -> list[str]:
    """Compile a policy and return the differences from the expectation."""
    try:
        compiled = load_policy(path)
    except PolicyRejected as error:
        return _check_codes(expected, [d for d in error.diagnostics if isinstance(d, Diagnostic)])
    except OSError as error:
        return [f"{path}: {error.strerror or error}"]
    problems = _check_codes(expected, list(compiled.warnings))
    return problems + check_rule_expectations(expected, compiled)


def _check_codes(expected: Expectation, diagnostics: list[Diagnostic]) -> list[str]:
    """Check that exactly the expected codes were reported; without any, that no error was."""
    codes = sorted({d.code for d in diagnostics})
    errors = [d for d in diagnostics if d.severity == "error"]
    if expected.diagnostics is None:
        return [f"the policy is rejected: {errors[0]}"] if errors else []
    expected_codes = sorted(expected.diagnostics)
    if sorted(set(expected_codes)) != codes:
        return [f"expected {', '.join(expected_codes)}, got {', '.join(codes) or 'none'}"]
    return []


def _run_ledger_step(decision_point: DecisionPoint, step: CaseStep, folder: Path) -> list[str]:
    """Run a step on the decision point and return the differences from the expectation."""
    subject = step.subject
    if step.action == "apply":
        return _run_apply(decision_point, folder / str(subject), step)
    if isinstance(subject, Release):
        if step.action == "import":
            decision_point.import_past(subject)
            return []
        is_reservation = step.action == "reserve"
        decide = decision_point.reserve if is_reservation else decision_point.submit
        decision = decide(subject)
        return _check_decision(decision.allowed, decision.exceeded_rules, step.expected)
    if step.action == "commit":
        decision_point.commit(str(subject))
    else:
        decision_point.void(str(subject), because="a step of a case")
    return []


def _check_decision(allowed: bool, broken: Sequence[str], expected: Expectation) -> list[str]:
    actual = "allow" if allowed else f"deny: {', '.join(broken) or 'no rule is exceeded'}"
    if expected.allow is not None and expected.allow != allowed:
        return [f"expected {'allow' if expected.allow else 'deny'}, got {actual}"]
    if expected.deny is not None and set(expected.deny) != set(broken):
        return [f"expected deny: {', '.join(expected.deny)}; got {actual}"]
    return []


def _run_apply(decision_point: DecisionPoint, path: Path, step: CaseStep) -> list[str]:
    expected = set(step.expected.conflicts or ())
    try:
        decision_point.apply(path, accept=tuple(map(str, step.accept)))
    except PolicyConflicts as error:
        exceeded = {c.name for c in error.conflicts if isinstance(c, RuleStatus)}
        redefined = {c.name for c in error.conflicts if isinstance(c, Redefinition)}
        if expected and exceeded <= expected <= exceeded | redefined:
            return []
        return [f"unexpected conflicts: {', '.join(sorted(exceeded | redefined))}"]
    return [f"expected conflicts: {', '.join(sorted(expected))}; got none"] if expected else []
