"""Search for a mechanism that matches one tree and not another; exhaustive, so it is also a proof.

The search goes depth-first over the case space. After each choice it evaluates both trees in
three-valued logic, and leaves a branch when the first tree can no longer match or the second tree
must match. Inputs on which a predicate fails are not counterexamples: such a request is denied.
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

#: Maximum number of evaluated tree nodes, a few seconds in the worst case. Comparing disjunctions
#: of forty and sixty attributes takes a quarter of it.
MAX_EVALUATIONS = 2_000_000


KnownFacts = dict[Key, str | int | bool | None]


def search_counterexample(
    first: Tree, second: Tree, schema: ReleaseSchema
) -> PredicateInput | str | None:
    """Return a counterexample, None if there is none, or the reason why the search gave up."""
    case_space = build_case_space((first, second), schema)
    if case_space.obstacle is not None:
        return case_space.obstacle
    remaining = MAX_EVALUATIONS
    # A disjunction matches if any of its terms matches, so the terms are searched one by one.
    for term in first.terms if isinstance(first, AnyOf) else (first,):
        cost = _evaluation_cost(term, case_space) + _evaluation_cost(second, case_space)
        start = _find_forced_facts(term, second, case_space)
        stack = [] if start is None else [start]
        while stack and remaining > 0:
            remaining -= cost
            difference = _search_step(term, second, case_space, stack)
            if difference is not None:
                return complete_input(difference, case_space, schema)
        if stack:
            return "there are too many cases to check"
    return None


def _search_step(
    first: Tree, second: Tree, case_space: CaseSpace, stack: list[KnownFacts]
) -> KnownFacts | None:
    """Take a case from the stack. Return it if it is a difference, else push its subcases."""
    known_facts = stack.pop()
    partial_input = PartialInput(case_space.universes, case_space.options, known_facts)
    result = _evaluate_difference(first, second, partial_input)
    if result is True:
        return known_facts
    if isinstance(result, Unknown):
        if result.key is None:
            raise InvariantBroken("the value of a predicate depends on no known fact")
        # The options are in search order; the last one pushed is taken first.
        for option in reversed(case_space.options[result.key]):
            stack.append({**known_facts, result.key: option})
    return None


def _find_forced_facts(first: Tree, second: Tree, case_space: CaseSpace) -> KnownFacts | None:
    """Return the list members that every difference has or lacks; None if they contradict."""
    required = _find_member_tests(first.terms if isinstance(first, AllOf) else (first,), case_space)
    excluded = _find_member_tests(
        second.terms if isinstance(second, AnyOf) else (second,), case_space
    )
    if not required.isdisjoint(excluded):
        return None
    return {**dict.fromkeys(sorted(excluded), False), **dict.fromkeys(sorted(required), True)}


def _find_member_tests(terms: tuple[Tree, ...], case_space: CaseSpace) -> set[tuple[str, str]]:
    """Return the keys (list, value) of the terms that test a constant for membership."""
    keys = set()
    for term in terms:
        if isinstance(term, Membership) and not isinstance(term.container, Literals):
            element = term.element
            if isinstance(element, Constant) and isinstance(element.value, str):
                keys.add((list_key(term.container), element.value))
    return {key for key in keys if key in case_space.options}


def _evaluation_cost(tree: Tree, case_space: CaseSpace) -> int:
    """Return an upper bound on the number of nodes evaluated for one case."""
    cost = 1 + sum(_evaluation_cost(child, case_space) for child in children(tree))
    match tree:
        case Quantifier(over=Literals(items)):
            return cost * (len(items) + 1)
        case Quantifier(over=over) | SizeOf(operand=AttributeList() | LabelTextList() as over):
            universe = case_space.universes[list_key(over)]
            return cost * (len(universe.named) + len(universe.interchangeable) + 1)
        case _:
            return cost


def _evaluate_difference(first: Tree, second: Tree, partial_input: PartialInput) -> Unknown | bool:
    """Return True for a difference, False if there can be none, or the next unknown fact."""
    first_value = evaluate_partial(first, partial_input, ())
    if first_value is False or first_value is FAILED:
        return False
    second_value = evaluate_partial(second, partial_input, ())
    if second_value is True or second_value is FAILED:
        return False
    if isinstance(first_value, Unknown):
        return first_value
    return second_value if isinstance(second_value, Unknown) else True


def complete_input(
    known_facts: Mapping[Key, str | int | bool | None], case_space: CaseSpace, schema: ReleaseSchema
) -> PredicateInput:
    """Return a valid input with the known facts and defaults for all others."""
    labels: dict[str, str | tuple[str, ...]] = {}
    for label in schema.labels.values():
        source = f"labels.{label.name}"
        if label.many:
            labels[label.name] = _list_members(source, known_facts, case_space)
        elif (source, None) in known_facts:
            value = known_facts[source, None]
            if value is not None:
                labels[label.name] = str(value)
        elif label.default is not None or label.required:
            first = (label.values or ("text",))[0]
            labels[label.name] = first if label.default is None else label.default
    return PredicateInput(
        _list_members("attributes", known_facts, case_space),
        labels,
        str(known_facts.get(("mechanism", None), "declared")),
        str(known_facts.get(("by", None), "")),
    )


def _list_members(
    source: str, known_facts: Mapping[Key, str | int | bool | None], case_space: CaseSpace
) -> tuple[str, ...]:
    if source not in case_space.universes:
        return ()
    universe = case_space.universes[source]
    named = [value for value in universe.named if known_facts.get((source, value))]
    return tuple(
        sorted([*named, *universe.interchangeable[: int(known_facts.get((source, None)) or 0)]])
    )
