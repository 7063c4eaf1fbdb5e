"""Budget functions written in CEL.

Example: `{cel: 'budget.epsilon < 1.0 ? budget.epsilon : budget.epsilon * 3.0'}`. The compiler runs
them when it reads a policy, never for a request, so the evaluator of the library is fast enough.
Only numbers are allowed, so no intermediate value can grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from dpolicy.errors import PredicateFailed
from dpolicy.predicates import cel
from dpolicy.predicates.cel_decoder import CelSyntax
from dpolicy.predicates.expression import ExpressionProblem, size_problem
from dpolicy.predicates.expression_problems import (
    describe_type,
    operator_symbol,
    problem_from_cel_error,
    underline_span,
)
from dpolicy.privacy.number_text import format_down
from dpolicy.releases.release_schema import ReleaseSchema
from dpolicy.text.did_you_mean import suggest

_NUMBERS = frozenset({"bool", "int", "double"})
_OPERATORS = frozenset({"_+_", "_-_", "_*_", "_/_", "_%_", "-_", "!_", "_&&_", "_||_", "_?_:_"})
_FUNCTIONS = _OPERATORS | {"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "double", "int"}


def parse_budget_function(
    text: str, names: frozenset[str]
) -> Callable[[str, float], float] | tuple[ExpressionProblem, ...]:
    """Return a function of a notion (one of `names`) and a budget value, or all problems.

    The function raises `PredicateFailed` if the expression has no finite value.
    """
    problem = size_problem(text)
    if problem is not None:
        return (problem,)
    variables = {f"budget.{name}": "double" for name in names}
    syntax = cel.check_cel(text, variables)
    if not isinstance(syntax, CelSyntax):
        return tuple(
            _suggest_budget_name(problem_from_cel_error(error, text, ReleaseSchema()), names)
            for error in syntax
        )
    problems = [*_check_result_type(syntax, text), *_check_operations(syntax, text)]
    if problems:
        return tuple(problems)

    def function(notion: str, value: float) -> float:
        try:
            result = cel.evaluate_cel(text, variables, {f"budget.{notion}": float(value)})
        except PredicateFailed as failure:
            reason = f"`{text}` has no value at {notion} {format_down(value)}: {failure}"
            raise PredicateFailed(reason) from None
        if not isinstance(result, int | float) or not math.isfinite(result):
            raise PredicateFailed(f"`{text}` is not a number at {notion} {format_down(value)}")
        return float(result)

    return function


def _suggest_budget_name(problem: ExpressionProblem, names: frozenset[str]) -> ExpressionProblem:
    """Replace the help of an unknown name: a budget function reads only `budget.…`."""
    if not problem.message.startswith("unknown name"):
        return problem
    unknown_name = problem.message.split("`")[1]
    help_ = suggest(unknown_name, [f"budget.{name}" for name in names])
    return ExpressionProblem("type", problem.message, problem.offset, problem.length, help_)


def _check_result_type(syntax: CelSyntax, text: str) -> Iterator[ExpressionProblem]:
    type_name = syntax.types.get(syntax.root.id, "dyn")
    if type_name not in ("double", "int"):
        message = f"a budget function must return a number, not {describe_type(type_name)}"
        yield ExpressionProblem("type", message, 0, max(1, len(text)))


def _check_operations(syntax: CelSyntax, text: str) -> Iterator[ExpressionProblem]:
    stack = [syntax.root]
    while stack:
        node = stack.pop()
        if node.kind == "call" and node.name in _FUNCTIONS:
            stack.extend(reversed(node.children))
        elif node.kind not in ("name", "constant") or syntax.types.get(node.id) not in _NUMBERS:
            what = (
                f"`{operator_symbol(node.name)}`" if node.kind == "call" else "this type of value"
            )
            offset = min(syntax.positions.get(node.id, 0), len(text) - 1)
            message = f"{what} is not available in budget functions"
            yield ExpressionProblem("refused", message, *underline_span(text, offset))
