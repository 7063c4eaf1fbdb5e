"""Three-valued (Kleene) evaluation of a typed tree on a partially known mechanism.

A known result equals the result of the closures on every mechanism that agrees with the known
facts. `FAILED` is an evaluation error that is certain to occur.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from dpolicy.errors import InvariantBroken, PredicateFailed
from dpolicy.predicates.evaluation import COMPARE, TEXT_TEST, apply_operator
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
)

KnownValue = str | int | float | bool
#: Key of a fact: the value of a text (`("by", None)`), whether a list contains a value
#: (`("attributes", "zip")`), or how many unnamed values a list contains (`("attributes", None)`).
Key = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Unknown value; `key` is a fact that would help to determine it, if there is one."""

    key: Key | None


class EvaluationFailure(Enum):
    """Marker value of an evaluation error."""

    FAILED = "failed"


FAILED = EvaluationFailure.FAILED
UNBOUND = Unknown(None)  # a variable without a known value
TruthValue = KnownValue | Unknown | EvaluationFailure


@dataclass(frozen=True, slots=True)
class ListUniverse:
    """All values that a list can contain: named ones, and ones that no atom distinguishes."""

    named: tuple[str, ...]
    interchangeable: tuple[str, ...]  # a list with k of them contains the first k


@dataclass(frozen=True, slots=True)
class PartialInput:
    """Partially known input: universe of each list, possible values of each fact, known facts."""

    universes: Mapping[str, ListUniverse]
    options: Mapping[Key, tuple[str | int | bool | None, ...]]
    known_facts: Mapping[Key, str | int | bool | None]  # None: the label is missing


def evaluate_partial(
    tree: Tree, partial_input: PartialInput, bound: tuple[KnownValue | Unknown, ...]
) -> TruthValue:
    """Evaluate `tree`; `bound` has the values of the quantifier variables, outermost first."""
    match tree:
        case Constant(value):
            return value
        case QuantifierVariable(depth):
            return bound[depth]
        case MechanismField() | LabelText() | HasLabel():
            return _look_up(tree, partial_input)
        case AllOf(terms):
            return _combine(
                (evaluate_partial(term, partial_input, bound) for term in terms), decisive=False
            )
        case AnyOf(terms):
            return _combine(
                (evaluate_partial(term, partial_input, bound) for term in terms), decisive=True
            )
        case Conditional(condition, first, second):
            chosen = evaluate_partial(condition, partial_input, bound)
            if isinstance(chosen, Unknown | EvaluationFailure):
                return chosen
            return evaluate_partial(first if chosen else second, partial_input, bound)
        case Membership(element, container):
            return _evaluate_membership(
                evaluate_partial(element, partial_input, bound), container, partial_input
            )
        case SizeOf(AttributeList() | LabelTextList() | Literals() as operand):
            low, high, key = _size_bounds(operand, partial_input)
            return _require_value(operand, low if low == high else Unknown(key), partial_input)
        case Quantifier():
            return _evaluate_quantifier(tree, partial_input, bound)
        case _:
            return _evaluate_strict(tree, partial_input, bound)


def _evaluate_strict(
    tree: Tree, partial_input: PartialInput, bound: tuple[KnownValue | Unknown, ...]
) -> TruthValue:
    """Evaluate an operator that needs the values of all operands."""
    if isinstance(tree, Comparison):
        result = _compare_by_bounds(tree, partial_input)
        if result is not None:
            return result
    match tree:
        case Not(operand) | SizeOf(operand):
            parts = [evaluate_partial(operand, partial_input, bound)]
        case Comparison(_, left, right) | Arithmetic(_, left, right) | TextTest(_, left, right):
            parts = [
                evaluate_partial(left, partial_input, bound),
                evaluate_partial(right, partial_input, bound),
            ]
        case _:
            raise InvariantBroken("a predicate has a node without a partial evaluator")
    if FAILED in parts:
        return FAILED
    values: list[KnownValue] = []
    for part in parts:
        if isinstance(part, Unknown | EvaluationFailure):
            return part
        values.append(part)
    try:
        return _apply(tree, values)
    except PredicateFailed:
        return FAILED


def _apply(tree: Tree, values: list[KnownValue]) -> KnownValue:
    match tree, values:
        case Not(), [value]:
            return not value
        case SizeOf(), [str(text)]:
            return len(text)
        case Comparison(operator), [left, right]:
            return COMPARE[operator](left, right)
        case TextTest(function), [str(text), str(part)]:
            return TEXT_TEST[function](text, part)
        case Arithmetic(operator), [int(one), int(other)]:
            return apply_operator(operator, one, other)
        case _:
            raise InvariantBroken("an operand has the wrong type")


def _look_up(
    tree: MechanismField | LabelText | HasLabel, partial_input: PartialInput
) -> TruthValue:
    if isinstance(tree, MechanismField):
        key: Key = (tree.name, None)
        value = partial_input.known_facts.get(key)
        return Unknown(key) if value is None else value
    source = f"labels.{tree.name}"
    if source in partial_input.universes:
        low, high, unknown_key = _size_bounds(LabelTextList(tree.name), partial_input)
        if low:
            return True
        return Unknown(unknown_key) if high else False
    key = (source, None)
    if isinstance(tree, HasLabel):
        if key in partial_input.known_facts:
            return partial_input.known_facts[key] is not None
        return Unknown(key) if None in partial_input.options.get(key, (None,)) else True
    if key not in partial_input.known_facts:
        return Unknown(key)
    value = partial_input.known_facts[key]
    return FAILED if value is None else value


def _combine(parts: Iterator[TruthValue], *, decisive: bool) -> TruthValue:
    """Combine terms of `&&` (False is decisive) or `||` (True is decisive)."""
    undecided: TruthValue | None = None
    for part in parts:
        if part is decisive:
            return decisive
        # An unknown part has priority over an error, because it may become decisive.
        if isinstance(part, Unknown | EvaluationFailure) and not isinstance(undecided, Unknown):
            undecided = part
    return not decisive if undecided is None else undecided


def _evaluate_membership(
    element: TruthValue, container: Tree, partial_input: PartialInput
) -> TruthValue:
    if isinstance(element, Unknown | EvaluationFailure):
        return element
    if isinstance(container, Literals):
        return any(element == item.value for item in container.items)
    source = list_key(container)
    if source not in partial_input.universes:
        return Unknown((source, str(element)))
    key = (source, str(element))
    if key in partial_input.options:  # a named value: fast path for long disjunctions
        fact = partial_input.known_facts.get(key)
        present = Unknown(key) if fact is None else bool(fact)
    else:
        members = _list_members(source, partial_input)
        present = next((present for value, present in members if value == element), False)
    return True if present is True else _require_value(container, present, partial_input)


def _require_value(container: Tree, result: TruthValue, partial_input: PartialInput) -> TruthValue:
    """Return the result of reading a list, or an error if the list is a label without a value.

    The result stays unknown while the label may have no value.
    """
    if not isinstance(container, LabelTextList):
        return result
    low, high, key = _size_bounds(container, partial_input)
    if high == 0:
        return FAILED
    return Unknown(key) if low == 0 and not isinstance(result, Unknown) else result


def _evaluate_quantifier(
    tree: Quantifier, partial_input: PartialInput, bound: tuple[KnownValue | Unknown, ...]
) -> TruthValue:
    if not isinstance(tree.over, Literals) and list_key(tree.over) not in partial_input.universes:
        return UNBOUND
    results: list[TruthValue] = []
    for value, present in _quantifier_values(tree.over, partial_input):
        if present is False:
            continue
        result = evaluate_partial(tree.body, partial_input, (*bound, value))
        if present is True:
            results.append(result)
        elif result is not (tree.quantifier == "all"):  # else its presence has no effect
            results.append(present)
    if tree.quantifier != "exists_one":
        result = _combine(iter(results), decisive=tree.quantifier == "exists")
    elif FAILED in results:
        result = FAILED
    else:
        undecided = [result for result in results if isinstance(result, Unknown)]
        result = undecided[0] if undecided else results.count(True) == 1
    return _require_value(tree.over, result, partial_input)


def _quantifier_values(
    over: Tree, partial_input: PartialInput
) -> Iterator[tuple[KnownValue, bool | Unknown]]:
    if isinstance(over, Literals):
        yield from ((item.value, True) for item in over.items)
    else:
        yield from _list_members(list_key(over), partial_input)


def _list_members(source: str, partial_input: PartialInput) -> Iterator[tuple[str, bool | Unknown]]:
    """Yield each possible value of a list, and whether the list contains it."""
    universe = partial_input.universes[source]
    for value in universe.named:
        present = partial_input.known_facts.get((source, value))
        yield value, Unknown((source, value)) if present is None else bool(present)
    count = partial_input.known_facts.get((source, None))
    for index, value in enumerate(universe.interchangeable):
        yield value, Unknown((source, None)) if count is None else index < int(count)


def _size_bounds(container: Tree, partial_input: PartialInput) -> tuple[int, int, Key | None]:
    """Return the minimum and maximum length of a list, and an unknown fact that affects it."""
    if isinstance(container, Literals):
        return len(container.items), len(container.items), None
    source = list_key(container)
    if source not in partial_input.universes:
        return 0, 1 << 62, None
    minimum, maximum, key = 0, 0, None
    for _, present in _list_members(source, partial_input):
        if isinstance(present, Unknown):
            maximum, key = maximum + 1, key or present.key
        elif present:
            minimum, maximum = minimum + 1, maximum + 1
    return minimum, maximum, key


def _compare_by_bounds(tree: Comparison, partial_input: PartialInput) -> bool | None:
    """Evaluate `size(x) > 3` by the bounds of the size, if they are enough; else return None."""
    if not isinstance(tree.left, SizeOf) or not isinstance(tree.right, Constant):
        return None
    if not isinstance(tree.left.operand, AttributeList | LabelTextList):
        return None
    low, high, _ = _size_bounds(tree.left.operand, partial_input)
    if low == 0 and isinstance(tree.left.operand, LabelTextList):
        return None  # the label may have no value, and then its size is an error
    constant = tree.right.value
    if tree.operator in ("==", "!=") and low < high:
        outside = not (isinstance(constant, int) and low <= constant <= high)
        return (tree.operator == "!=") if outside else None
    results = {COMPARE[tree.operator](size, constant) for size in (low, high)}
    return results.pop() if len(results) == 1 else None


def list_key(container: Tree) -> str:
    """Return the source name of a list, as used in keys of facts."""
    match container:
        case AttributeList():
            return "attributes"
        case LabelTextList(name):
            return f"labels.{name}"
        case _:
            raise InvariantBroken("a list is neither a constant nor an input")
