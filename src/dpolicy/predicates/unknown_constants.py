"""Check for constants that no mechanism of a schema can have.

The vocabulary is closed: `labels.stage == "fnial"` is an error, not a rule that never matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dpolicy.predicates.expression_problems import ExpressionProblem, underline_length
from dpolicy.predicates.tree import (
    AttributeList,
    Comparison,
    Conditional,
    Constant,
    LabelText,
    LabelTextList,
    Literals,
    MechanismField,
    Membership,
    Quantifier,
    QuantifierVariable,
    Tree,
    children,
)
from dpolicy.privacy.mechanisms.registry import MECHANISM_KINDS
from dpolicy.releases.release_schema import ReleaseSchema
from dpolicy.text.did_you_mean import suggest


@dataclass(frozen=True, slots=True)
class _Domain:
    """Set of the texts that an operand can have; `what` names it in messages."""

    what: str
    values: frozenset[str]


def find_unknown_constants(
    tree: Tree, text: str, schema: ReleaseSchema
) -> Iterator[ExpressionProblem]:
    """Yield a problem for each constant that can never equal the operand it is compared with."""
    yield from _check_node(tree, text, schema, ())


def _check_node(
    tree: Tree, text: str, schema: ReleaseSchema, scope: tuple[Tree, ...]
) -> Iterator[ExpressionProblem]:
    match tree:
        case Comparison("==" | "!=", left, right) | Membership(left, right):
            for one, other in ((left, right), (right, left)):
                domain = _domain(one, schema, scope)
                if domain is not None:
                    yield from _check_constants(domain, _constants(other, scope), text)
        case Quantifier(_, _, over, body):
            yield from _check_node(body, text, schema, (*scope, over))
            return
        case _:
            pass
    for child in children(tree):
        yield from _check_node(child, text, schema, scope)


def _domain(tree: Tree, schema: ReleaseSchema, scope: tuple[Tree, ...]) -> _Domain | None:
    match tree:
        case AttributeList():
            return _Domain("attribute", schema.attributes)
        case LabelText(name) | LabelTextList(name):
            values = schema.labels[name].values
            return None if values is None else _Domain(f"value of `{name}`", frozenset(values))
        case MechanismField("mechanism"):
            return _Domain("mechanism", frozenset(MECHANISM_KINDS))
        case QuantifierVariable(depth):
            return _domain(scope[depth], schema, scope)
        case Conditional(_, first, second):
            domains = _domain(first, schema, scope), _domain(second, schema, scope)
            if domains[0] is None or domains[1] is None:
                return None
            return _Domain(domains[0].what, domains[0].values | domains[1].values)
        case _:
            return None


def _constants(tree: Tree, scope: tuple[Tree, ...]) -> Iterator[Constant]:
    match tree:
        case Constant():
            yield tree
        case Literals(items):
            yield from items
        case QuantifierVariable(depth):
            if isinstance(scope[depth], Literals):
                yield from _constants(scope[depth], scope)
        case Conditional(_, first, second):
            yield from _constants(first, scope)
            yield from _constants(second, scope)
        case _:
            pass


def _check_constants(
    domain: _Domain, constants: Iterator[Constant], text: str
) -> Iterator[ExpressionProblem]:
    kind = "unknown-attribute" if domain.what == "attribute" else "unknown-value"
    for constant in constants:
        value = constant.value
        if isinstance(value, str) and value not in domain.values:
            yield ExpressionProblem(
                kind,
                f"unknown {domain.what} `{value}`",
                constant.offset,
                underline_length(text, constant.offset),
                suggest(value, domain.values),
            )
