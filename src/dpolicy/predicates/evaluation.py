"""Turns a typed tree into closures that answer for one mechanism after the other.

They follow CEL on the fragment the tree can express: `&&`, `||`, `all` and `exists` give an answer
whenever one side decides it, in either order, and only otherwise pass on an error; `exists_one`
and everything else pass on every error. An error is `PredicateFailed`, never "no match" (T7).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from dpolicy.errors import InvariantBroken, PredicateFailed
from dpolicy.predicates.tree import (
    AllOf,
    AnyOf,
    Arithmetic,
    AttributeList,
    Comparison,
    Conditional,
    Constant,
    HasLabel,
    LabelText,
    LabelTextList,
    Literals,
    MechanismField,
    Membership,
    Not,
    Quantifier,
    QuantifierVariable,
    SizeOf,
    TextTest,
    Tree,
    walk,
)
from dpolicy.releases.release_schema import PredicateInput

#: How often the body of nested quantifiers may run for one mechanism: about 10 ms.
#: Only a mechanism with hundreds of attributes under nested quantifiers comes near it.
STEP_LIMIT = 50_000

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1  # CEL's whole numbers have 64 bits


class TooManyStepsError(PredicateFailed):
    """Nested quantifiers that would run for too long on one mechanism."""


VariableBindings = tuple[Any, ...]  # the values of the quantifiers' variables, outermost first
Evaluator = Callable[[PredicateInput, VariableBindings], Any]
BooleanTest = Callable[[PredicateInput, VariableBindings], bool]

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TEXT_TEST: dict[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": operator.contains,
}


def compile_tree(tree: Tree) -> Callable[[PredicateInput], bool]:
    """The predicate `tree` as a function of a mechanism's facts."""
    run = _closure(tree)
    return lambda facts: bool(run(facts, ()))


def check_int64(value: int) -> int:
    """`value`, if it fits CEL's whole numbers."""
    if LOWEST <= value <= HIGHEST:
        return value
    raise PredicateFailed("a whole number left the range of 64 bits")


def apply_operator(symbol: str, left: int, right: int) -> int:
    """Arithmetic on whole numbers; division rounds towards zero, as in CEL (and unlike Python)."""
    if symbol == "+":
        return check_int64(left + right)
    if symbol == "-":
        return check_int64(left - right)
    if symbol == "*":
        return check_int64(left * right)
    if right == 0:
        raise PredicateFailed("division by zero")
    quotient = check_int64(abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1))
    return quotient if symbol == "/" else left - quotient * right


def _closure(tree: Tree) -> Evaluator:
    match tree:
        case Not(operand):
            inner = _closure(operand)
            return lambda facts, bound: not inner(facts, bound)
        case AllOf(terms):
            return _combined([_closure(term) for term in terms], decided_by=False)
        case AnyOf(terms):
            return _combined([_closure(term) for term in terms], decided_by=True)
        case Conditional():
            return _choice(tree)
        case Comparison():
            return _comparison(tree)
        case Membership():
            return _member(tree)
        case SizeOf(operand):
            measured = _closure(operand)
            return lambda facts, bound: len(measured(facts, bound))
        case TextTest(function, operand, argument):
            test, text, part = TEXT_TEST[function], _closure(operand), _closure(argument)
            return lambda facts, bound: test(text(facts, bound), part(facts, bound))
        case Arithmetic(symbol, left, right):
            first, second = _closure(left), _closure(right)
            return lambda facts, bound: apply_operator(
                symbol, first(facts, bound), second(facts, bound)
            )
        case Quantifier():
            return _quantified(tree)
        case _:
            return _leaf(tree)


def _leaf(tree: Tree) -> Evaluator:
    match tree:
        case Constant(value):
            return lambda facts, bound: value
        case Literals(items):
            values = tuple(item.value for item in items)
            return lambda facts, bound: values
        case AttributeList():
            return lambda facts, bound: facts.attributes
        case MechanismField("mechanism"):
            return lambda facts, bound: facts.mechanism
        case MechanismField("by"):
            return lambda facts, bound: facts.by
        case LabelText(name):
            return _label(name)
        case LabelTextList(name):
            return lambda facts, bound: facts.labels.get(name, ())
        case HasLabel(name):
            # A `many` label is there when it has a value, as with repeated fields in CEL.
            return lambda facts, bound: facts.labels.get(name, ()) != ()
        case QuantifierVariable(depth):
            return lambda facts, bound: bound[depth]
        case _:
            raise InvariantBroken("a predicate holds a node that nothing evaluates")


def _label(name: str) -> Evaluator:
    def read(facts: PredicateInput, bound: VariableBindings) -> str | tuple[str, ...]:
        value = facts.labels.get(name)
        if value is None:
            raise PredicateFailed(f"the label `{name}` is missing")
        return value

    return read


def _combined(terms: list[BooleanTest], *, decided_by: bool) -> BooleanTest:
    """`&&` is decided by a false term, `||` by a true one, whatever else fails."""

    def run(facts: PredicateInput, bound: VariableBindings) -> bool:
        failure: PredicateFailed | None = None
        for term in terms:
            try:
                if term(facts, bound) is decided_by:
                    return decided_by
            except PredicateFailed as error:
                failure = error
        if failure is not None:
            raise failure
        return not decided_by

    return run


def _choice(tree: Conditional) -> Evaluator:
    condition, first, second = (
        _closure(part) for part in (tree.condition, tree.first, tree.second)
    )
    return lambda facts, bound: (
        first(facts, bound) if condition(facts, bound) else second(facts, bound)
    )


def _comparison(tree: Comparison) -> Evaluator:
    compare, left = COMPARE[tree.operator], _closure(tree.left)
    if isinstance(tree.right, Constant):
        value = tree.right.value
        return lambda facts, bound: compare(left(facts, bound), value)
    right = _closure(tree.right)
    return lambda facts, bound: compare(left(facts, bound), right(facts, bound))


def _member(tree: Membership) -> Evaluator:
    match tree:
        case Membership(Constant(value), AttributeList()):
            return lambda facts, bound: value in facts.attributes
        case Membership(element, Literals(items)):
            wanted, values = _closure(element), frozenset(item.value for item in items)
            return lambda facts, bound: wanted(facts, bound) in values
        case Membership(element, container):
            member, among = _closure(element), _closure(container)
            return lambda facts, bound: member(facts, bound) in among(facts, bound)
    raise InvariantBroken("`in` without its two operands")


def _quantified(tree: Quantifier) -> Evaluator:
    over = _bounded(tree)
    body: BooleanTest = _closure(tree.body)
    if tree.quantifier == "exists_one":
        # No early stop: an error later in the list must not be missed.
        return lambda facts, bound: (
            sum([body(facts, (*bound, item)) for item in over(facts, bound)]) == 1
        )
    decided_by = tree.quantifier == "exists"

    def run(facts: PredicateInput, bound: VariableBindings) -> bool:
        failure: PredicateFailed | None = None
        for item in over(facts, bound):
            try:
                if body(facts, (*bound, item)) is decided_by:
                    return decided_by
            except PredicateFailed as error:
                failure = error
        if failure is not None:
            raise failure
        return not decided_by

    return run


def _bounded(tree: Quantifier) -> Evaluator:
    """What `tree` ranges over, refused where nested quantifiers would run for too long."""
    over = _closure(tree.over)
    inner = [node for node in walk(tree.body) if isinstance(node, Quantifier)]
    if not inner or tree.depth > 0:
        return over
    nesting = max(node.depth for node in inner) + 1
    ranges = [_closure(node.over) for node in (tree, *inner)]

    def checked(facts: PredicateInput, bound: VariableBindings) -> Any:
        longest = max(len(each(facts, bound)) for each in ranges)
        if longest**nesting * len(inner) > STEP_LIMIT:
            raise TooManyStepsError(f"quantifiers nested over {longest} values take too long")
        return over(facts, bound)

    return checked
