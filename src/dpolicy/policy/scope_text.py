"""Scope text: a predicate that a question states, outside of a policy file."""

from __future__ import annotations

from dpolicy.errors import PolicyRejected
from dpolicy.policy.checker import CEL_CODES
from dpolicy.policy.model import ALWAYS
from dpolicy.predicates.expression import Always, ExpressionProblem, Predicate, parse_predicate
from dpolicy.releases.release_schema import ReleaseSchema
from dpolicy.text.diagnostics import Diagnostic
from dpolicy.text.spans import Source, Span, line_and_column


def parse_scope(text: str, schema: ReleaseSchema, name: str = "--when") -> Predicate:
    """Parse `always` or a CEL expression over the names of a schema.

    Raise `PolicyRejected` with all diagnostics, located in a source called `name`.
    """
    if text == ALWAYS:
        return Always()
    parsed = parse_predicate(text, schema)
    if isinstance(parsed, tuple):
        source = Source(name, text)
        raise PolicyRejected([_diagnostic(problem, source) for problem in parsed])
    return parsed


def _diagnostic(problem: ExpressionProblem, source: Source) -> Diagnostic:
    line, column = line_and_column(source, problem.offset)
    span = Span(source, line, column, line, column + max(problem.length, 1))
    return Diagnostic(CEL_CODES[problem.kind], problem.message, span, problem.help)
