"""Compilation of typed trees to closures that evaluate one mechanism at a time.

The closures follow CEL on the fragment of the tree. `&&`, `||`, `all` and `exists` return a result
if one operand decides it, in any order, and raise an error only otherwise. `exists_one` and all
other operators raise every error. An error is `PredicateFailed`, never "no match"
(SECURITY.md, item 3).
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

#: Maximum number of evaluations of the body of nested quantifiers for one mechanism, about 10 ms.
#: Only nested quantifiers over hundreds of attributes reach it.
MAX_STEPS = 50_000

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1  # whole numbers of CEL have 64 bits


class TooManyStepsError(PredicateFailed):
    """Raised if nested quantifiers would exceed `MAX_STEPS` for one mechanism."""


VariableBindings = tuple[Any, ...]  # values of the quantifier variables, outermost first
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
    """Compile a predicate tree to a function of the predicate input of a mechanism."""
    evaluate = _compile_node(tree)
    return lambda inputs: bool(evaluate(inputs, ()))


def check_int64(value: int) -> int:
    """Return `value`. Raise `PredicateFailed` if it does not fit 64 bits."""
    if LOWEST <= value <= HIGHEST:
        return value
    raise PredicateFailed("a whole number left the range of 64 bits")


def apply_operator(symbol: str, left: int, right: int) -> int:
    """Apply an arithmetic operator; division rounds towards zero, as in CEL (unlike Python).

    Raise `PredicateFailed` on overflow and on division by zero.
    """
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


def _compile_node(tree: Tree) -> Evaluator:
    match tree:
        case Not(operand):
            inner = _compile_node(operand)
            return lambda inputs, bound: not inner(inputs, bound)
        case AllOf(terms):
            return _compile_terms([_compile_node(term) for term in terms], decisive=False)
        case AnyOf(terms):
            return _compile_terms([_compile_node(term) for term in terms], decisive=True)
        case Conditional():
            return _compile_conditional(tree)
        case Comparison():
            return _compile_comparison(tree)
        case Membership():
            return _compile_membership(tree)
        case SizeOf(operand):
            sized = _compile_node(operand)
            return lambda inputs, bound: len(sized(inputs, bound))
        case TextTest(function, operand, argument):
            test, text, part = TEXT_TEST[function], _compile_node(operand), _compile_node(argument)
            return lambda inputs, bound: test(text(inputs, bound), part(inputs, bound))
        case Arithmetic(symbol, left, right):
            first, second = _compile_node(left), _compile_node(right)
            return lambda inputs, bound: apply_operator(
                symbol, first(inputs, bound), second(inputs, bound)
            )
        case Quantifier():
            return _compile_quantifier(tree)
        case _:
            return _compile_leaf(tree)


def _compile_leaf(tree: Tree) -> Evaluator:
    match tree:
        case Constant(value):
            return lambda inputs, bound: value
        case Literals(items):
            values = tuple(item.value for item in items)
            return lambda inputs, bound: values
        case AttributeList():
            return lambda inputs, bound: inputs.attributes
        case MechanismField("mechanism"):
            return lambda inputs, bound: inputs.mechanism
        case MechanismField("by"):
            return lambda inputs, bound: inputs.by
        case LabelText(name) | LabelTextList(name):
            return _compile_label(name)
        case HasLabel(name):
            return _compile_has_label(name)
        case QuantifierVariable(depth):
            return lambda inputs, bound: bound[depth]
        case _:
            raise InvariantBroken("a predicate has a node without an evaluator")


def _compile_label(name: str) -> Evaluator:
    def read(inputs: PredicateInput, bound: VariableBindings) -> str | tuple[str, ...]:
        value = inputs.labels.get(name, ())
        if value == ():  # no value: a `many` label without values is missing too
            raise PredicateFailed(f"the label `{name}` is missing")
        return value

    return read


def _compile_has_label(name: str) -> Evaluator:
    def is_present(inputs: PredicateInput, bound: VariableBindings) -> bool:
        if name in inputs.unknown_labels:
            raise PredicateFailed(f"the label `{name}` is unknown")
        # A `many` label is present if it has a value, like a repeated field in CEL.
        return inputs.labels.get(name, ()) != ()

    return is_present


def _compile_terms(terms: list[BooleanTest], *, decisive: bool) -> BooleanTest:
    """Compile `&&` (a false term is decisive) or `||` (a true term is decisive).

    A decisive term determines the result even if other terms fail.
    """

    def evaluate(inputs: PredicateInput, bound: VariableBindings) -> bool:
        failure: PredicateFailed | None = None
        for term in terms:
            try:
                if term(inputs, bound) is decisive:
                    return decisive
            except PredicateFailed as error:
                failure = error
        if failure is not None:
            raise failure
        return not decisive

    return evaluate


def _compile_conditional(tree: Conditional) -> Evaluator:
    condition, first, second = (
        _compile_node(part) for part in (tree.condition, tree.first, tree.second)
    )
    return lambda inputs, bound: (
        first(inputs, bound) if condition(inputs, bound) else second(inputs, bound)
    )


def _compile_comparison(tree: Comparison) -> Evaluator:
    compare, left = COMPARE[tree.operator], _compile_node(tree.left)
    if isinstance(tree.right, Constant):
        value = tree.right.value
        return lambda inputs, bound: compare(left(inputs, bound), value)
    right = _compile_node(tree.right)
    return lambda inputs, bound: compare(left(inputs, bound), right(inputs, bound))


def _compile_membership(tree: Membership) -> Evaluator:
    match tree:
        case Membership(Constant(value), AttributeList()):
            return lambda inputs, bound: value in inputs.attributes
        case Membership(element, Literals(items)):
            member, values = _compile_node(element), frozenset(item.value for item in items)
            return lambda inputs, bound: member(inputs, bound) in values
        case Membership(element, container):
            member, elements = _compile_node(element), _compile_node(container)
            return lambda inputs, bound: member(inputs, bound) in elements(inputs, bound)
    raise InvariantBroken("`in` without its two operands")


def _compile_quantifier(tree: Quantifier) -> Evaluator:
    over = _compile_range(tree)
    body: BooleanTest = _compile_node(tree.body)
    if tree.quantifier == "exists_one":
        # Evaluate all values: an error at a later value must be raised.
        return lambda inputs, bound: (
            sum([body(inputs, (*bound, item)) for item in over(inputs, bound)]) == 1
        )
    decisive = tree.quantifier == "exists"

    def evaluate(inputs: PredicateInput, bound: VariableBindings) -> bool:
        failure: PredicateFailed | None = None
        for item in over(inputs, bound):
            try:
                if body(inputs, (*bound, item)) is decisive:
                    return decisive
            except PredicateFailed as error:
                failure = error
        if failure is not None:
            raise failure
        return not decisive

    return evaluate


def _compile_range(tree: Quantifier) -> Evaluator:
    """Compile the list of a quantifier. Evaluating it raises `TooManyStepsError` if needed."""
    over = _compile_node(tree.over)
    inner = [node for node in walk(tree.body) if isinstance(node, Quantifier)]
    if not inner or tree.depth > 0:
        return over
    nesting = max(node.depth for node in inner) + 1
    lengths = [_compile_length(node.over) for node in (tree, *inner)]

    def evaluate(inputs: PredicateInput, bound: VariableBindings) -> Any:
        longest = max(length(inputs, bound) for length in lengths)
        if longest**nesting * len(inner) > MAX_STEPS:
            raise TooManyStepsError(f"quantifiers nested over {longest} values take too long")
        return over(inputs, bound)

    return evaluate


def _compile_length(over: Tree) -> Callable[[PredicateInput, VariableBindings], int]:
    """Compile the length of a list; a missing label has length 0 and does not fail here."""
    if isinstance(over, LabelTextList):
        name = over.name
        return lambda inputs, bound: len(inputs.labels.get(name, ()))
    values = _compile_node(over)
    return lambda inputs, bound: len(values(inputs, bound))
