"""Turns two typed trees into a mechanism that only the first matches, or the proof there is none.

A depth-first search over the questions of `observation.py`. After each answer both trees are
judged in three-valued logic; a branch ends as soon as the first can no longer match or the second
must. Facts on which either predicate fails are no counter-examples: such a request is denied.
"""

from __future__ import annotations

from collections.abc import Mapping

from dpolicy.errors import InvariantBroken
from dpolicy.predicates.kleene import FAILED, Key, Open, World, judged, source_of
from dpolicy.predicates.observation import Questions, questions
from dpolicy.predicates.tree import (
    AllOf,
    AnyOf,
    Attributes,
    Constant,
    LabelTexts,
    Literals,
    Member,
    Quantified,
    Size,
    Tree,
    children,
)
from dpolicy.releases.labels import Facts, Schema

#: How many nodes of the trees may be judged in all: some seconds at the worst. Comparing
#: disjunctions of forty and sixty attributes takes a quarter of it.
WORK_LIMIT = 2_000_000


Known = dict[Key, str | int | bool | None]


def difference(first: Tree, second: Tree, schema: Schema) -> Facts | str | None:
    """Facts that match `first` and not `second`; None if there are none; or why nobody knows."""
    asked = questions((first, second), schema)
    if asked.obstacle is not None:
        return asked.obstacle
    work = WORK_LIMIT
    # A disjunction matches where one of its terms does, whatever the others do.
    for term in first.terms if isinstance(first, AnyOf) else (first,):
        cost = _cost(term, asked) + _cost(second, asked)
        known = _forced(term, second, asked)
        stack = [] if known is None else [known]
        while stack and work > 0:
            work -= cost
            if (found := _step(term, second, asked, stack)) is not None:
                return completed(found, asked, schema)
        if stack:
            return "too many cases to look at each"
    return None


def _step(first: Tree, second: Tree, asked: Questions, stack: list[Known]) -> Known | None:
    """Look at one case: a difference, or the cases it falls into pushed on the stack."""
    known = stack.pop()
    question = _undecided(first, second, World(asked.universes, asked.options, known))
    if question is True:
        return known
    if isinstance(question, Open):
        if question.key is None:
            raise InvariantBroken("a predicate depends on nothing that can be asked")
        # The last one pushed is tried first: the options are in the order to try them.
        for option in reversed(asked.options[question.key]):
            stack.append({**known, question.key: option})
    return None


def _forced(first: Tree, second: Tree, asked: Questions) -> Known | None:
    """What every difference must hold and must not; None if that is contradictory."""
    held = _members(first.terms if isinstance(first, AllOf) else (first,), asked)
    absent = _members(second.terms if isinstance(second, AnyOf) else (second,), asked)
    if not held.isdisjoint(absent):
        return None
    return {**dict.fromkeys(sorted(absent), False), **dict.fromkeys(sorted(held), True)}


def _members(terms: tuple[Tree, ...], asked: Questions) -> set[tuple[str, str]]:
    found = set()
    for term in terms:
        if isinstance(term, Member) and not isinstance(term.container, Literals):
            element = term.element
            if isinstance(element, Constant) and isinstance(element.value, str):
                found.add((source_of(term.container), element.value))
    return {key for key in found if key in asked.options}


def _cost(tree: Tree, asked: Questions) -> int:
    """How many nodes are judged for one case, at most."""
    each = 1 + sum(_cost(child, asked) for child in children(tree))
    match tree:
        case Quantified(over=Literals(items)):
            return each * (len(items) + 1)
        case Quantified(over=over) | Size(operand=Attributes() | LabelTexts() as over):
            universe = asked.universes[source_of(over)]
            return each * (len(universe.named) + len(universe.alike) + 1)
        case _:
            return each


def _undecided(first: Tree, second: Tree, world: World) -> Open | bool:
    """True for a difference, false where there can be none, or the next question."""
    matched = judged(first, world, ())
    if matched is False or matched is FAILED:
        return False
    excluded = judged(second, world, ())
    if excluded is True or excluded is FAILED:
        return False
    if isinstance(matched, Open):
        return matched
    return excluded if isinstance(excluded, Open) else True


def completed(
    known: Mapping[Key, str | int | bool | None], asked: Questions, schema: Schema
) -> Facts:
    """A legal mechanism with these answers; what was not asked gets its default."""
    labels: dict[str, str | tuple[str, ...]] = {}
    for label in schema.labels.values():
        source = f"labels.{label.name}"
        if label.many:
            labels[label.name] = _held(source, known, asked)
        elif (source, None) in known:
            value = known[source, None]
            if value is not None:
                labels[label.name] = str(value)
        elif label.default is not None or label.required:
            first = (label.values or ("text",))[0]
            labels[label.name] = first if label.default is None else label.default
    return Facts(
        _held("attributes", known, asked),
        labels,
        str(known.get(("mechanism", None), "declared")),
        str(known.get(("by", None), "")),
    )


def _held(
    source: str, known: Mapping[Key, str | int | bool | None], asked: Questions
) -> tuple[str, ...]:
    if source not in asked.universes:
        return ()
    universe = asked.universes[source]
    named = [value for value in universe.named if known.get((source, value))]
    return tuple(sorted([*named, *universe.alike[: int(known.get((source, None)) or 0)]]))
