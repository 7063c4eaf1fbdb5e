"""Turns two typed trees into a mechanism that only the first matches, or the proof there is none.

A depth-first search over the questions of `observation.py`. After each answer both trees are
judged in three-valued logic; a branch ends as soon as the first can no longer match or the second
must. Facts on which either predicate fails are no counter-examples: such a request is denied.
"""

from __future__ import annotations

from collections.abc import Mapping

from dpolicy.errors import InvariantBroken
from dpolicy.predicates.implication.case_space import CaseSpace, build_case_space
from dpolicy.predicates.implication.kleene import (
    FAILED,
    Key,
    PartialInput,
    Unknown,
    evaluate_partial,
    list_key,
)
from dpolicy.predicates.tree import (
    AllOf,
    AnyOf,
    AttributeList,
    Constant,
    LabelTextList,
    Literals,
    Membership,
    Quantifier,
    SizeOf,
    Tree,
    children,
)
from dpolicy.releases.release_schema import PredicateInput, ReleaseSchema

#: How many nodes of the trees may be judged in all: some seconds at the worst. Comparing
#: disjunctions of forty and sixty attributes takes a quarter of it.
WORK_LIMIT = 2_000_000


KnownFacts = dict[Key, str | int | bool | None]


def search_counterexample(
    first: Tree, second: Tree, schema: ReleaseSchema
) -> PredicateInput | str | None:
    """Facts that match `first` and not `second`; None if there are none; or why nobody knows."""
    asked = build_case_space((first, second), schema)
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
                return complete_input(found, asked, schema)
        if stack:
            return "too many cases to look at each"
    return None


def _step(
    first: Tree, second: Tree, case_space: CaseSpace, stack: list[KnownFacts]
) -> KnownFacts | None:
    """Look at one case: a difference, or the cases it falls into pushed on the stack."""
    known = stack.pop()
    question = _undecided(
        first, second, PartialInput(case_space.universes, case_space.options, known)
    )
    if question is True:
        return known
    if isinstance(question, Unknown):
        if question.key is None:
            raise InvariantBroken("a predicate depends on nothing that can be asked")
        # The last one pushed is tried first: the options are in the order to try them.
        for option in reversed(case_space.options[question.key]):
            stack.append({**known, question.key: option})
    return None


def _forced(first: Tree, second: Tree, case_space: CaseSpace) -> KnownFacts | None:
    """What every difference must hold and must not; None if that is contradictory."""
    held = _members(first.terms if isinstance(first, AllOf) else (first,), case_space)
    absent = _members(second.terms if isinstance(second, AnyOf) else (second,), case_space)
    if not held.isdisjoint(absent):
        return None
    return {**dict.fromkeys(sorted(absent), False), **dict.fromkeys(sorted(held), True)}


def _members(terms: tuple[Tree, ...], case_space: CaseSpace) -> set[tuple[str, str]]:
    found = set()
    for term in terms:
        if isinstance(term, Membership) and not isinstance(term.container, Literals):
            element = term.element
            if isinstance(element, Constant) and isinstance(element.value, str):
                found.add((list_key(term.container), element.value))
    return {key for key in found if key in case_space.options}


def _cost(tree: Tree, case_space: CaseSpace) -> int:
    """How many nodes are judged for one case, at most."""
    each = 1 + sum(_cost(child, case_space) for child in children(tree))
    match tree:
        case Quantifier(over=Literals(items)):
            return each * (len(items) + 1)
        case Quantifier(over=over) | SizeOf(operand=AttributeList() | LabelTextList() as over):
            universe = case_space.universes[list_key(over)]
            return each * (len(universe.named) + len(universe.alike) + 1)
        case _:
            return each


def _undecided(first: Tree, second: Tree, world: PartialInput) -> Unknown | bool:
    """True for a difference, false where there can be none, or the next question."""
    matched = evaluate_partial(first, world, ())
    if matched is False or matched is FAILED:
        return False
    excluded = evaluate_partial(second, world, ())
    if excluded is True or excluded is FAILED:
        return False
    if isinstance(matched, Unknown):
        return matched
    return excluded if isinstance(excluded, Unknown) else True


def complete_input(
    known_facts: Mapping[Key, str | int | bool | None], case_space: CaseSpace, schema: ReleaseSchema
) -> PredicateInput:
    """A legal mechanism with these answers; what was not asked gets its default."""
    labels: dict[str, str | tuple[str, ...]] = {}
    for label in schema.labels.values():
        source = f"labels.{label.name}"
        if label.many:
            labels[label.name] = _held(source, known_facts, case_space)
        elif (source, None) in known_facts:
            value = known_facts[source, None]
            if value is not None:
                labels[label.name] = str(value)
        elif label.default is not None or label.required:
            first = (label.values or ("text",))[0]
            labels[label.name] = first if label.default is None else label.default
    return PredicateInput(
        _held("attributes", known_facts, case_space),
        labels,
        str(known_facts.get(("mechanism", None), "declared")),
        str(known_facts.get(("by", None), "")),
    )


def _held(
    source: str, known_facts: Mapping[Key, str | int | bool | None], case_space: CaseSpace
) -> tuple[str, ...]:
    if source not in case_space.universes:
        return ()
    universe = case_space.universes[source]
    named = [value for value in universe.named if known_facts.get((source, value))]
    return tuple(sorted([*named, *universe.alike[: int(known_facts.get((source, None)) or 0)]]))
