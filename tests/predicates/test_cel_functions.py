"""Budget functions: results, evaluation errors and problems."""

from __future__ import annotations

import pytest

from dpolicy.errors import PredicateFailed
from dpolicy.predicates.cel_functions import parse_budget_function

NAMES = frozenset({"epsilon", "rho", "mu"})


@pytest.mark.parametrize(
    ("text", "notion", "value", "expected"),
    [
        ("budget.epsilon < 1.0 ? budget.epsilon : budget.epsilon * 3.0", "epsilon", 0.5, 0.5),
        ("budget.epsilon < 1.0 ? budget.epsilon : budget.epsilon * 3.0", "epsilon", 2, 6.0),
        ("budget.rho + 0.25", "rho", 0.5, 0.75),
        ("-budget.mu", "mu", 1.5, -1.5),
        ("2", "mu", 1.5, 2.0),
        ("double(int(budget.mu))", "mu", 1.5, 1.0),
    ],
)
def test_functions(text: str, notion: str, value: float, expected: float) -> None:
    function = parse_budget_function(text, NAMES)
    assert not isinstance(function, tuple)
    result = function(notion, value)
    assert result == expected
    assert isinstance(result, float)


@pytest.mark.parametrize(
    "text", ["budget.rho * 2.0", "1 / 0", "1.0 / 0.0", "0.0 / 0.0", "budget.epsilon * 1e308"]
)
def test_a_function_without_a_finite_value_fails(text: str) -> None:
    function = parse_budget_function(text, NAMES)
    assert not isinstance(function, tuple)
    with pytest.raises(PredicateFailed, match="epsilon"):
        function("epsilon", 1e300)


@pytest.mark.parametrize(
    ("text", "kind", "message", "help_"),
    [
        ("budget.epsilon * 3", "type", "a decimal number and a whole number", "`3.0`"),
        ("budget.epsilom", "type", "unknown name `budget.epsilom`", "`budget.epsilon`"),
        ("x", "type", "unknown name `x`", "use one of `budget.epsilon`"),
        ("budget.epsilon > 1.0", "type", "must return a number, not a bool", None),
        ('size("abc")', "refused", "`size` is not available", None),
        ('double("1")', "refused", "this type of value", None),
        ("[1.0].map(x, x)[0]", "refused", "`[ ]` is not available", None),
        ("dyn(1.0)", "refused", "`dyn` is not available", None),
        ("budget.epsilon +", "syntax", "is incomplete", None),
        ("1" * 5000, "too-large", "5000 bytes", "split"),
    ],
)
def test_problems(text: str, kind: str, message: str, help_: str | None) -> None:
    problems = parse_budget_function(text, NAMES)
    assert isinstance(problems, tuple)
    assert any(problem.kind == kind and message in problem.message for problem in problems), (
        problems
    )
    assert help_ is None or any(help_ in (problem.help or "") for problem in problems)
    assert all(0 <= problem.offset <= len(text) and problem.length >= 1 for problem in problems)
