"""Predicates: the scope of a rule, as a test of mechanisms.

The text is CEL over `attributes`, `labels`, `mechanism` and `by`. Google's implementation parses
and type-checks it. Only a fragment is accepted that is fast to evaluate and that the implication
check can analyse. Closures of this package evaluate it. An evaluation error raises an exception
that denies the request; it never means "no match" (SECURITY.md, item 3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dpolicy.errors import PredicateFailed
from dpolicy.predicates import cel
from dpolicy.predicates.cel_decoder import CelSyntax
from dpolicy.predicates.cel_rewrites import may_need_rewrite, rewrite_for_checker
from dpolicy.predicates.evaluation import compile_tree
from dpolicy.predicates.expression_problems import ExpressionProblem as ExpressionProblem
from dpolicy.predicates.expression_problems import problem_from_cel_error
from dpolicy.predicates.implication.kleene import UNBOUND, PartialInput, Unknown, evaluate_partial
from dpolicy.predicates.tree import (
    AttributeList,
    Constant,
    Literals,
    Membership,
    Quantifier,
    QuantifierVariable,
    Tree,
    children,
)
from dpolicy.predicates.tree_builder import TreeBuilder, build_tree
from dpolicy.predicates.unknown_constants import find_unknown_constants
from dpolicy.releases.release_schema import PredicateInput, ReleaseSchema

#: Maximum size of an expression; it bounds the cost of parsing.
MAX_EXPRESSION_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Always:
    """Predicate `always`, which matches every mechanism."""


@dataclass(frozen=True, slots=True)
class UsesAny:
    """Predicate that matches every mechanism with at least one of the attributes."""

    attributes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Expression:
    """Predicate parsed from CEL text. Two expressions are equal if their texts are equal."""

    text: str
    tree: Tree = field(compare=False, repr=False)
    evaluate: Callable[[PredicateInput], bool] = field(compare=False, repr=False)


Predicate = Always | UsesAny | Expression


def matches(predicate: Predicate, predicate_input: PredicateInput) -> bool:
    """Return whether a mechanism is in the scope. Raise `PredicateFailed` on an evaluation error.

    The ledger records the messages of `PredicateFailed`, and the audit compares them: they must
    not change, here and in `evaluation.py`.
    """
    if isinstance(predicate, UsesAny):
        return not predicate.attributes.isdisjoint(predicate_input.attributes)
    if isinstance(predicate, Always):
        return True
    try:
        return predicate.evaluate(predicate_input)
    except PredicateFailed as failure:
        raise type(failure)(f"`{predicate.text}` has no answer: {failure}") from None


def parse_predicate(text: str, schema: ReleaseSchema) -> Expression | tuple[ExpressionProblem, ...]:
    """Parse and check a predicate. Return the expression, or all problems in text order."""
    problem = size_problem(text)
    if problem is not None:
        return (problem,)
    rewritten, problems = text, tuple[ExpressionProblem, ...]()
    if may_need_rewrite(text):
        parsed = cel.parse_cel(text)
        if not isinstance(parsed, CelSyntax):
            return _root_causes(problem_from_cel_error(error, text, schema) for error in parsed)
        rewritten, problems = rewrite_for_checker(text, parsed)
    syntax = cel.check_cel(rewritten, _variable_types(schema))
    if not isinstance(syntax, CelSyntax):
        return _root_causes(
            [*problems, *(problem_from_cel_error(error, text, schema) for error in syntax)]
        )
    builder = TreeBuilder(text, syntax, schema, [*problems])
    tree = build_tree(builder)
    all_problems = [*builder.problems, *find_unknown_constants(tree, text, schema)]
    return _sort(all_problems) if all_problems else Expression(text, tree, compile_tree(tree))


def reads_attribute(predicate: Predicate, attribute: str) -> bool:
    """Return whether `attribute` may change the result; True if this cannot be excluded."""
    match predicate:
        case Always():
            return False
        case UsesAny(attributes):
            return attribute in attributes
        case Expression():
            return _tree_reads(predicate.tree, attribute, ())


def size_problem(text: str) -> ExpressionProblem | None:
    """Return the problem of a text that must not be parsed: too large or not encodable."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return ExpressionProblem("syntax", "unpaired surrogate character", error.start, 1)
    if size > MAX_EXPRESSION_BYTES:
        message = f"the expression has {size} bytes, more than {MAX_EXPRESSION_BYTES}"
        return ExpressionProblem(
            "too-large", message, 0, len(text), "split it into several policies"
        )
    if "\0" in text:  # the library would stop at it
        return ExpressionProblem("syntax", "unexpected zero byte", text.index("\0"), 1)
    return None


def _variable_types(schema: ReleaseSchema) -> dict[str, str]:
    """Return the CEL type of every name that an expression can read."""
    variables = {"attributes": "list(string)", "mechanism": "string", "by": "string"}
    for label in schema.labels.values():
        variables[f"labels.{label.name}"] = "list(string)" if label.many else "string"
        variables[f"has.labels.{label.name}"] = "bool"  # see cel_rewrites.py
    return variables


def _root_causes(problems: Iterable[ExpressionProblem]) -> tuple[ExpressionProblem, ...]:
    """Return the first problem alone if it is a syntax error with a known fix, else all.

    Such an error, for example `=` instead of `==`, causes the syntax errors after it.
    """
    ordered = _sort(problems)
    causes_others = ordered[0].kind == "syntax" and ordered[0].help is not None
    return ordered[:1] if causes_others else ordered


def _sort(problems: Iterable[ExpressionProblem]) -> tuple[ExpressionProblem, ...]:
    """Return the distinct problems in the order of their positions."""
    return tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.offset))


def _tree_reads(tree: Tree, attribute: str, scope: tuple[Tree, ...]) -> bool:
    match tree:
        case AttributeList():
            return True  # every use other than the two below
        case Membership(element, AttributeList()):
            constants = _constant_values(element, scope)
            if constants is None or attribute in constants:
                return True
            return _tree_reads(element, attribute, scope)
        case Quantifier(_, _, over, body):
            if isinstance(over, AttributeList) and _may_change(tree, attribute, scope):
                return True
            return _tree_reads(body, attribute, (*scope, over))
        case _:
            return any(_tree_reads(child, attribute, scope) for child in children(tree))


def _constant_values(element: Tree, scope: tuple[Tree, ...]) -> tuple[object, ...] | None:
    """Return the values that `element` can have, or None if they are not constants of the text."""
    match element:
        case Constant(value):
            return (value,)
        case QuantifierVariable(depth):
            over = scope[depth]
            return tuple(item.value for item in over.items) if isinstance(over, Literals) else None
        case _:
            return None


def _may_change(tree: Quantifier, attribute: str, scope: tuple[Tree, ...]) -> bool:
    """Return whether adding the value `attribute` to the list may change a quantifier."""
    unknown_input = PartialInput({}, {}, {})
    variables: tuple[str | Unknown, ...] = (*(UNBOUND for _ in scope), attribute)
    neutral = tree.quantifier == "all"  # `all` ignores values for which its body is true
    return evaluate_partial(tree.body, unknown_input, variables) is not neutral
