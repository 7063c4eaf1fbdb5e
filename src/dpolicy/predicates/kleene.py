"""Turns a typed tree and what is known so far about a mechanism into true, false, or not yet.

Three-valued logic over partial facts: an answer here is the answer of the closures on every
mechanism that agrees with what is known. `FAILED` stands for an evaluation error that is certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from dpolicy.errors import InvariantBroken, PredicateFailed
from dpolicy.predicates.evaluation import COMPARE, TEXT_TEST, calculated
from dpolicy.predicates.tree import (
    AllOf,
    AnyOf,
    Arithmetic,
    Attributes,
    Choice,
    Comparison,
    Constant,
    HasLabel,
    LabelText,
    LabelTexts,
    Literals,
    Member,
    Not,
    Own,
    Quantified,
    Size,
    TextTest,
    Tree,
    Variable,
)

Value = str | int | float | bool
#: A question about a mechanism: the value of a text (`("by", None)`), whether a list holds a value
#: (`("attributes", "zip")`), or how many of the values nobody mentions it holds (`(…, None)`).
Key = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Open:
    """Not decided; `key` is a question whose answer would help (None: nothing would)."""

    key: Key | None


class Failure(Enum):
    """The one value that stands for an evaluation error."""

    FAILED = "failed"


FAILED = Failure.FAILED
UNBOUND = Open(None)  # a variable whose value is not known
Judgement = Value | Open | Failure


@dataclass(frozen=True, slots=True)
class Universe:
    """All values a list can hold: those told apart, and those that are alike to every atom."""

    named: tuple[str, ...]
    alike: tuple[str, ...]  # if k of them are there, it is the first k


@dataclass(frozen=True, slots=True)
class World:
    """The lists with their universes, the answers a question can have, and those known so far."""

    universes: Mapping[str, Universe]
    options: Mapping[Key, tuple[str | int | bool | None, ...]]
    known: Mapping[Key, str | int | bool | None]  # None: the label is missing


def judged(tree: Tree, world: World, bound: tuple[Value | Open, ...]) -> Judgement:
    """What `tree` comes to."""
    match tree:
        case Constant(value):
            return value
        case Variable(depth):
            return bound[depth]
        case Own() | LabelText() | HasLabel():
            return _fact(tree, world)
        case AllOf(terms):
            return _combined((judged(term, world, bound) for term in terms), decided_by=False)
        case AnyOf(terms):
            return _combined((judged(term, world, bound) for term in terms), decided_by=True)
        case Choice(condition, first, second):
            chosen = judged(condition, world, bound)
            if isinstance(chosen, Open | Failure):
                return chosen
            return judged(first if chosen else second, world, bound)
        case Member(element, container):
            return _member(judged(element, world, bound), container, world)
        case Size(Attributes() | LabelTexts() | Literals() as operand):
            low, high, key = _size(operand, world)
            return low if low == high else Open(key)
        case Quantified():
            return _quantified(tree, world, bound)
        case _:
            return _strict(tree, world, bound)


def _strict(tree: Tree, world: World, bound: tuple[Value | Open, ...]) -> Judgement:
    """The operators that need all of their operands."""
    if isinstance(tree, Comparison) and (early := _by_size(tree, world)) is not None:
        return early
    match tree:
        case Not(operand) | Size(operand):
            parts = [judged(operand, world, bound)]
        case Comparison(_, left, right) | Arithmetic(_, left, right) | TextTest(_, left, right):
            parts = [judged(left, world, bound), judged(right, world, bound)]
        case _:
            raise InvariantBroken("a predicate holds a node that nothing judges")
    if FAILED in parts:
        return FAILED
    values: list[Value] = []
    for part in parts:
        if isinstance(part, Open | Failure):
            return part
        values.append(part)
    try:
        return _applied(tree, values)
    except PredicateFailed:
        return FAILED


def _applied(tree: Tree, values: list[Value]) -> Value:
    match tree, values:
        case Not(), [value]:
            return not value
        case Size(), [str(text)]:
            return len(text)
        case Comparison(operator), [left, right]:
            return COMPARE[operator](left, right)
        case TextTest(function), [str(text), str(part)]:
            return TEXT_TEST[function](text, part)
        case Arithmetic(operator), [int(one), int(other)]:
            return calculated(operator, one, other)
        case _:
            raise InvariantBroken("an operator met a value of another type")


def _fact(tree: Own | LabelText | HasLabel, world: World) -> Judgement:
    if isinstance(tree, Own):
        key: Key = (tree.name, None)
        value = world.known.get(key)
        return Open(key) if value is None else value
    source = f"labels.{tree.name}"
    if source in world.universes:
        low, high, blocking = _size(LabelTexts(tree.name), world)
        return True if low else Open(blocking) if high else False
    key = (source, None)
    if isinstance(tree, HasLabel):
        if key in world.known:
            return world.known[key] is not None
        return Open(key) if None in world.options.get(key, (None,)) else True
    if key not in world.known:
        return Open(key)
    value = world.known[key]
    return FAILED if value is None else value


def _combined(parts: Iterator[Judgement], *, decided_by: bool) -> Judgement:
    undecided: Judgement | None = None
    for part in parts:
        if part is decided_by:
            return decided_by
        # An open part outweighs an error: it may yet decide.
        if isinstance(part, Open | Failure) and not isinstance(undecided, Open):
            undecided = part
    return not decided_by if undecided is None else undecided


def _member(element: Judgement, container: Tree, world: World) -> Judgement:
    if isinstance(element, Open | Failure):
        return element
    if isinstance(container, Literals):
        return any(element == item.value for item in container.items)
    source = source_of(container)
    if source not in world.universes:
        return Open((source, str(element)))
    key = (source, str(element))
    if key in world.options:  # a named value; the way the long disjunctions of policies take
        present = world.known.get(key)
        return Open(key) if present is None else bool(present)
    return next((there for value, there in _elements(source, world) if value == element), False)


def _quantified(tree: Quantified, world: World, bound: tuple[Value | Open, ...]) -> Judgement:
    if not isinstance(tree.over, Literals) and source_of(tree.over) not in world.universes:
        return UNBOUND
    decided_by = tree.quantifier == "exists"
    results: list[Judgement] = []
    for value, present in _range(tree.over, world):
        if present is False:
            continue
        result = judged(tree.body, world, (*bound, value))
        if present is True:
            results.append(result)
        elif result is not (tree.quantifier == "all"):  # else its presence changes nothing
            results.append(present)
    if tree.quantifier != "exists_one":
        return _combined(iter(results), decided_by=decided_by)
    if FAILED in results:
        return FAILED
    undecided = [result for result in results if isinstance(result, Open)]
    return undecided[0] if undecided else results.count(True) == 1


def _range(over: Tree, world: World) -> Iterator[tuple[Value, bool | Open]]:
    if isinstance(over, Literals):
        yield from ((item.value, True) for item in over.items)
    else:
        yield from _elements(source_of(over), world)


def _elements(source: str, world: World) -> Iterator[tuple[str, bool | Open]]:
    """Each value the list can hold, and whether it does."""
    universe = world.universes[source]
    for value in universe.named:
        present = world.known.get((source, value))
        yield value, Open((source, value)) if present is None else bool(present)
    count = world.known.get((source, None))
    for index, value in enumerate(universe.alike):
        yield value, Open((source, None)) if count is None else index < int(count)


def _size(container: Tree, world: World) -> tuple[int, int, Key | None]:
    """The least and the greatest length the list can have, and a question that tells more."""
    if isinstance(container, Literals):
        return len(container.items), len(container.items), None
    source = source_of(container)
    if source not in world.universes:
        return 0, 1 << 62, None
    least, greatest, key = 0, 0, None
    for _, present in _elements(source, world):
        if isinstance(present, Open):
            greatest, key = greatest + 1, key or present.key
        elif present:
            least, greatest = least + 1, greatest + 1
    return least, greatest, key


def _by_size(tree: Comparison, world: World) -> bool | None:
    """`size(x) > 3` is often decided before every value is."""
    if not isinstance(tree.left, Size) or not isinstance(tree.right, Constant):
        return None
    if not isinstance(tree.left.operand, Attributes | LabelTexts):
        return None
    low, high, _ = _size(tree.left.operand, world)
    wanted = tree.right.value
    answers = {COMPARE[tree.operator](size, wanted) for size in (low, high)}
    if tree.operator in ("==", "!=") and low < high:
        outside = not (isinstance(wanted, int) and low <= wanted <= high)
        return (tree.operator == "!=") if outside else None
    return answers.pop() if len(answers) == 1 else None


def source_of(container: Tree) -> str:
    """The list a node stands for, as questions name it."""
    match container:
        case Attributes():
            return "attributes"
        case LabelTexts(name):
            return f"labels.{name}"
        case _:
            raise InvariantBroken("a list that is neither a constant nor a fact")
