"""Turns a typed tree and what is known so far about a mechanism into true, false, or not yet.

Three-valued logic over partial facts: an answer here is the answer of the closures on every
mechanism that agrees with what is known. `FAILED` stands for an evaluation error that is certain.
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
#: A question about a mechanism: the value of a text (`("by", None)`), whether a list holds a value
#: (`("attributes", "zip")`), or how many of the values nobody mentions it holds (`(…, None)`).
Key = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Not decided; `key` is a question whose answer would help (None: nothing would)."""

    key: Key | None


class EvaluationFailure(Enum):
    """The one value that stands for an evaluation error."""

    FAILED = "failed"


FAILED = EvaluationFailure.FAILED
UNBOUND = Unknown(None)  # a variable whose value is not known
TruthValue = KnownValue | Unknown | EvaluationFailure


@dataclass(frozen=True, slots=True)
class ListUniverse:
    """All values a list can hold: those told apart, and those that are alike to every atom."""

    named: tuple[str, ...]
    alike: tuple[str, ...]  # if k of them are there, it is the first k


@dataclass(frozen=True, slots=True)
class PartialInput:
    """The lists with their universes, the answers a question can have, and those known so far."""

    universes: Mapping[str, ListUniverse]
    options: Mapping[Key, tuple[str | int | bool | None, ...]]
    known_facts: Mapping[Key, str | int | bool | None]  # None: the label is missing


def evaluate_partial(
    tree: Tree, world: PartialInput, bound: tuple[KnownValue | Unknown, ...]
) -> TruthValue:
    """What `tree` comes to."""
    match tree:
        case Constant(value):
            return value
        case QuantifierVariable(depth):
            return bound[depth]
        case MechanismField() | LabelText() | HasLabel():
            return _fact(tree, world)
        case AllOf(terms):
            return _combined(
                (evaluate_partial(term, world, bound) for term in terms), decided_by=False
            )
        case AnyOf(terms):
            return _combined(
                (evaluate_partial(term, world, bound) for term in terms), decided_by=True
            )
        case Conditional(condition, first, second):
            chosen = evaluate_partial(condition, world, bound)
            if isinstance(chosen, Unknown | EvaluationFailure):
                return chosen
            return evaluate_partial(first if chosen else second, world, bound)
        case Membership(element, container):
            return _member(evaluate_partial(element, world, bound), container, world)
        case SizeOf(AttributeList() | LabelTextList() | Literals() as operand):
            low, high, key = _size(operand, world)
            return low if low == high else Unknown(key)
        case Quantifier():
            return _quantified(tree, world, bound)
        case _:
            return _strict(tree, world, bound)


def _strict(tree: Tree, world: PartialInput, bound: tuple[KnownValue | Unknown, ...]) -> TruthValue:
    """The operators that need all of their operands."""
    if isinstance(tree, Comparison) and (early := _by_size(tree, world)) is not None:
        return early
    match tree:
        case Not(operand) | SizeOf(operand):
            parts = [evaluate_partial(operand, world, bound)]
        case Comparison(_, left, right) | Arithmetic(_, left, right) | TextTest(_, left, right):
            parts = [evaluate_partial(left, world, bound), evaluate_partial(right, world, bound)]
        case _:
            raise InvariantBroken("a predicate holds a node that nothing judges")
    if FAILED in parts:
        return FAILED
    values: list[KnownValue] = []
    for part in parts:
        if isinstance(part, Unknown | EvaluationFailure):
            return part
        values.append(part)
    try:
        return _applied(tree, values)
    except PredicateFailed:
        return FAILED


def _applied(tree: Tree, values: list[KnownValue]) -> KnownValue:
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
            raise InvariantBroken("an operator met a value of another type")


def _fact(tree: MechanismField | LabelText | HasLabel, world: PartialInput) -> TruthValue:
    if isinstance(tree, MechanismField):
        key: Key = (tree.name, None)
        value = world.known_facts.get(key)
        return Unknown(key) if value is None else value
    source = f"labels.{tree.name}"
    if source in world.universes:
        low, high, blocking = _size(LabelTextList(tree.name), world)
        return True if low else Unknown(blocking) if high else False
    key = (source, None)
    if isinstance(tree, HasLabel):
        if key in world.known_facts:
            return world.known_facts[key] is not None
        return Unknown(key) if None in world.options.get(key, (None,)) else True
    if key not in world.known_facts:
        return Unknown(key)
    value = world.known_facts[key]
    return FAILED if value is None else value


def _combined(parts: Iterator[TruthValue], *, decided_by: bool) -> TruthValue:
    undecided: TruthValue | None = None
    for part in parts:
        if part is decided_by:
            return decided_by
        # An open part outweighs an error: it may yet decide.
        if isinstance(part, Unknown | EvaluationFailure) and not isinstance(undecided, Unknown):
            undecided = part
    return not decided_by if undecided is None else undecided


def _member(element: TruthValue, container: Tree, world: PartialInput) -> TruthValue:
    if isinstance(element, Unknown | EvaluationFailure):
        return element
    if isinstance(container, Literals):
        return any(element == item.value for item in container.items)
    source = list_key(container)
    if source not in world.universes:
        return Unknown((source, str(element)))
    key = (source, str(element))
    if key in world.options:  # a named value; the way the long disjunctions of policies take
        present = world.known_facts.get(key)
        return Unknown(key) if present is None else bool(present)
    return next((there for value, there in _elements(source, world) if value == element), False)


def _quantified(
    tree: Quantifier, world: PartialInput, bound: tuple[KnownValue | Unknown, ...]
) -> TruthValue:
    if not isinstance(tree.over, Literals) and list_key(tree.over) not in world.universes:
        return UNBOUND
    decided_by = tree.quantifier == "exists"
    results: list[TruthValue] = []
    for value, present in _range(tree.over, world):
        if present is False:
            continue
        result = evaluate_partial(tree.body, world, (*bound, value))
        if present is True:
            results.append(result)
        elif result is not (tree.quantifier == "all"):  # else its presence changes nothing
            results.append(present)
    if tree.quantifier != "exists_one":
        return _combined(iter(results), decided_by=decided_by)
    if FAILED in results:
        return FAILED
    undecided = [result for result in results if isinstance(result, Unknown)]
    return undecided[0] if undecided else results.count(True) == 1


def _range(over: Tree, world: PartialInput) -> Iterator[tuple[KnownValue, bool | Unknown]]:
    if isinstance(over, Literals):
        yield from ((item.value, True) for item in over.items)
    else:
        yield from _elements(list_key(over), world)


def _elements(source: str, world: PartialInput) -> Iterator[tuple[str, bool | Unknown]]:
    """Each value the list can hold, and whether it does."""
    universe = world.universes[source]
    for value in universe.named:
        present = world.known_facts.get((source, value))
        yield value, Unknown((source, value)) if present is None else bool(present)
    count = world.known_facts.get((source, None))
    for index, value in enumerate(universe.alike):
        yield value, Unknown((source, None)) if count is None else index < int(count)


def _size(container: Tree, world: PartialInput) -> tuple[int, int, Key | None]:
    """The least and the greatest length the list can have, and a question that tells more."""
    if isinstance(container, Literals):
        return len(container.items), len(container.items), None
    source = list_key(container)
    if source not in world.universes:
        return 0, 1 << 62, None
    least, greatest, key = 0, 0, None
    for _, present in _elements(source, world):
        if isinstance(present, Unknown):
            greatest, key = greatest + 1, key or present.key
        elif present:
            least, greatest = least + 1, greatest + 1
    return least, greatest, key


def _by_size(tree: Comparison, world: PartialInput) -> bool | None:
    """`size(x) > 3` is often decided before every value is."""
    if not isinstance(tree.left, SizeOf) or not isinstance(tree.right, Constant):
        return None
    if not isinstance(tree.left.operand, AttributeList | LabelTextList):
        return None
    low, high, _ = _size(tree.left.operand, world)
    wanted = tree.right.value
    answers = {COMPARE[tree.operator](size, wanted) for size in (low, high)}
    if tree.operator in ("==", "!=") and low < high:
        outside = not (isinstance(wanted, int) and low <= wanted <= high)
        return (tree.operator == "!=") if outside else None
    return answers.pop() if len(answers) == 1 else None


def list_key(container: Tree) -> str:
    """The list a node stands for, as questions name it."""
    match container:
        case AttributeList():
            return "attributes"
        case LabelTextList(name):
            return f"labels.{name}"
        case _:
            raise InvariantBroken("a list that is neither a constant nor a fact")
