"""Turns the text of a predicate into something that says of a mechanism whether a rule covers it.

The text is CEL over `attributes`, `labels`, `mechanism` and `by`. It is parsed and
type-checked by Google's implementation, restricted to a fragment that is cheap to evaluate and
can be reasoned about, and evaluated by closures of our own. An evaluation error is an exception
that denies the request, never "no match" (threat T7).
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

#: Longer than any predicate a person maintains; keeps bombs small.
BYTE_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Always:
    """`when: always`: every mechanism."""


@dataclass(frozen=True, slots=True)
class UsesAny:
    """Every mechanism that uses at least one of these attributes."""

    attributes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Expression:
    """A predicate that was read from text; two are equal if their texts are."""

    text: str
    tree: Tree = field(compare=False, repr=False)
    evaluate: Callable[[PredicateInput], bool] = field(compare=False, repr=False)


Predicate = Always | UsesAny | Expression


def matches(predicate: Predicate, facts: PredicateInput) -> bool:
    """Whether the mechanism lies in the scope; raises `PredicateFailed` if that has no answer."""
    if isinstance(predicate, UsesAny):
        return not predicate.attributes.isdisjoint(facts.attributes)
    if isinstance(predicate, Always):
        return True
    try:
        return predicate.evaluate(facts)
    except PredicateFailed as failure:
        raise type(failure)(f"`{predicate.text}` has no answer: {failure}") from None


def parse_predicate(text: str, schema: ReleaseSchema) -> Expression | tuple[ExpressionProblem, ...]:
    """The predicate, or everything that is wrong with it."""
    if (unreadable := size_problem(text)) is not None:
        return (unreadable,)
    checkable, refused = text, tuple[ExpressionProblem, ...]()
    if may_need_rewrite(text):
        parsed = cel.parse_cel(text)
        if not isinstance(parsed, CelSyntax):
            return _first_causes(
                problem_from_cel_error(complaint, text, schema) for complaint in parsed
            )
        checkable, refused = rewrite_for_checker(text, parsed)
    syntax = cel.check_cel(checkable, _variables(schema))
    if not isinstance(syntax, CelSyntax):
        return _first_causes(
            [*refused, *(problem_from_cel_error(each, text, schema) for each in syntax)]
        )
    reading = TreeBuilder(text, syntax, schema, [*refused])
    tree = build_tree(reading)
    mistakes = [*reading.mistakes, *find_unknown_constants(tree, text, schema)]
    return _in_order(mistakes) if mistakes else Expression(text, tree, compile_tree(tree))


def reads_attribute(predicate: Predicate, attribute: str) -> bool:
    """Whether using `attribute` may change the answer; when in doubt, yes."""
    match predicate:
        case Always():
            return False
        case UsesAny(attributes):
            return attribute in attributes
        case Expression():
            return _reads(predicate.tree, attribute, ())


def size_problem(text: str) -> ExpressionProblem | None:
    """Why `text` is not even parsed, if so."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return ExpressionProblem("syntax", "half a character", error.start, 1)
    if size > BYTE_LIMIT:
        message = f"the expression has {size} bytes, at most {BYTE_LIMIT} are allowed"
        return ExpressionProblem(
            "too-large", message, 0, len(text), "split it into several policies"
        )
    if "\0" in text:  # the library would stop reading there
        return ExpressionProblem("syntax", "unexpected zero byte", text.index("\0"), 1)
    return None


def _variables(schema: ReleaseSchema) -> dict[str, str]:
    """Every name an expression can read, with its type, as the checker wants them."""
    variables = {"attributes": "list(string)", "mechanism": "string", "by": "string"}
    for label in schema.labels.values():
        variables[f"labels.{label.name}"] = "list(string)" if label.many else "string"
        variables[f"has.labels.{label.name}"] = "bool"  # see spelling.py
    return variables


def _first_causes(mistakes: Iterable[ExpressionProblem]) -> tuple[ExpressionProblem, ...]:
    """A mistake with a known remedy (`=` for `==`) causes the syntax mistakes after it."""
    ordered = _in_order(mistakes)
    causes = ordered[0].kind == "syntax" and ordered[0].help is not None
    return ordered[:1] if causes else ordered


def _in_order(mistakes: Iterable[ExpressionProblem]) -> tuple[ExpressionProblem, ...]:
    return tuple(sorted(dict.fromkeys(mistakes), key=lambda mistake: mistake.offset))


def _reads(tree: Tree, attribute: str, scope: tuple[Tree, ...]) -> bool:
    match tree:
        case AttributeList():
            return True  # any use that is not one of those below
        case Membership(element, AttributeList()):
            constants = _possible(element, scope)
            return constants is None or attribute in constants or _reads(element, attribute, scope)
        case Quantifier(_, _, over, body):
            if isinstance(over, AttributeList) and _decides(tree, attribute, scope):
                return True
            return _reads(body, attribute, (*scope, over))
        case _:
            return any(_reads(child, attribute, scope) for child in children(tree))


def _possible(element: Tree, scope: tuple[Tree, ...]) -> tuple[object, ...] | None:
    """The values `element` can take, if they stand in the text."""
    match element:
        case Constant(value):
            return (value,)
        case QuantifierVariable(depth):
            over = scope[depth]
            return tuple(item.value for item in over.items) if isinstance(over, Literals) else None
        case _:
            return None


def _decides(tree: Quantifier, attribute: str, scope: tuple[Tree, ...]) -> bool:
    """Whether one more value, `attribute`, may change what the quantifier says."""
    nothing_known = PartialInput({}, {}, {})
    bound: tuple[str | Unknown, ...] = (*(UNBOUND for _ in scope), attribute)
    without_effect = tree.quantifier == "all"  # `all` ignores what its body is true for
    return evaluate_partial(tree.body, nothing_known, bound) is not without_effect
