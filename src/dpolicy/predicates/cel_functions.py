"""Turns the text of a budget function into a function from one budget to another.

`{cel: 'budget.epsilon < 1.0 ? budget.epsilon : budget.epsilon * 3.0'}`. It runs
when a policy is read, never for a request, so the library's own evaluator is fast enough; only
numbers are let in, so no expression can grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from dpolicy.errors import PredicateFailed
from dpolicy.predicates import cel
from dpolicy.predicates.cel_decoder import CelSyntax
from dpolicy.predicates.expression import ExpressionProblem, size_problem
from dpolicy.predicates.expression_problems import (
    expression_suggestion,
    kind_in_words,
    operator_symbol,
    problem_from_cel_error,
    underline_span,
)
from dpolicy.releases.release_schema import ReleaseSchema

_NUMBERS = frozenset({"bool", "int", "double"})
_OPERATORS = frozenset({"_+_", "_-_", "_*_", "_/_", "_%_", "-_", "!_", "_&&_", "_||_", "_?_:_"})
_FUNCTIONS = _OPERATORS | {"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "double", "int"}


def parse_budget_function(
    text: str, names: frozenset[str]
) -> Callable[[str, float], float] | tuple[ExpressionProblem, ...]:
    """The function of a budget's notion (one of `names`) and value, or what is wrong with it."""
    if (unreadable := size_problem(text)) is not None:
        return (unreadable,)
    variables = {f"budget.{name}": "double" for name in names}
    syntax = cel.check_cel(text, variables)
    if not isinstance(syntax, CelSyntax):
        return tuple(
            _budget_name(problem_from_cel_error(each, text, ReleaseSchema()), names)
            for each in syntax
        )
    mistakes = [*_result(syntax, text), *_refused(syntax, text)]
    if mistakes:
        return tuple(mistakes)

    def function(notion: str, value: float) -> float:
        try:
            result = cel.evaluate_cel(text, variables, {f"budget.{notion}": float(value)})
        except PredicateFailed as failure:
            reason = f"`{text}` has no value at {notion} {value:g}: {failure}"
            raise PredicateFailed(reason) from None
        if not isinstance(result, int | float) or not math.isfinite(result):
            raise PredicateFailed(f"`{text}` is not a number at {notion} {value:g}")
        return float(result)

    return function


def _budget_name(mistake: ExpressionProblem, names: frozenset[str]) -> ExpressionProblem:
    if not mistake.message.startswith("unknown name"):
        return mistake
    written = mistake.message.split("`")[1]
    known = [f"budget.{name}" for name in names]
    listed = ", ".join(f"`{name}`" for name in sorted(known))
    help_ = expression_suggestion(written, known) or f"the names are {listed}"
    return ExpressionProblem("type", mistake.message, mistake.offset, mistake.length, help_)


def _result(syntax: CelSyntax, text: str) -> Iterator[ExpressionProblem]:
    kind = syntax.types.get(syntax.root.id, "dyn")
    if kind not in ("double", "int"):
        message = f"a budget function gives a number, this is {kind_in_words(kind)}"
        yield ExpressionProblem("type", message, 0, max(1, len(text)))


def _refused(syntax: CelSyntax, text: str) -> Iterator[ExpressionProblem]:
    stack = [syntax.root]
    while stack:
        node = stack.pop()
        if node.kind == "call" and node.name in _FUNCTIONS:
            stack.extend(reversed(node.children))
        elif node.kind not in ("name", "constant") or syntax.types.get(node.id) not in _NUMBERS:
            what = (
                f"`{operator_symbol(node.name)}`" if node.kind == "call" else "this kind of value"
            )
            at = min(syntax.positions.get(node.id, 0), len(text) - 1)
            message = f"{what} is not available in budget functions"
            yield ExpressionProblem("refused", message, *underline_span(text, at))
