"""Turns two predicates into the answer whether every mechanism of the first matches the second.

The order of scopes (φ₁ ⊑ φ₂) rests on this, and with it which rules are pruned, so it never says
`Implied` without a proof and never `Refuted` without a mechanism to show: set logic for generated
scopes, an exact search for the rest, and a solver where text is free and looked into.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from dpolicy.errors import InvariantBroken, PredicateFailed
from dpolicy.predicates.evaluation import TooManyStepsError, compile_tree
from dpolicy.predicates.expression import Always, Expression, Predicate, UsesAny, matches
from dpolicy.predicates.implication import counterexample_search, z3_solver
from dpolicy.predicates.implication.case_space import CaseSpace, build_case_space
from dpolicy.predicates.implication.kleene import ListUniverse
from dpolicy.predicates.tree import AllOf, AnyOf, AttributeList, Constant, Membership, Tree
from dpolicy.releases.release_schema import PredicateInput, ReleaseSchema


@dataclass(frozen=True, slots=True)
class Implied:
    """Every mechanism that matches the first predicate matches the second."""


@dataclass(frozen=True, slots=True)
class Refuted:
    """There is a mechanism that matches the first predicate and not the second."""

    counterexample: PredicateInput


@dataclass(frozen=True, slots=True)
class Undecided:
    """No proof and no counter-example was found."""

    reason: str


def implies(
    first: Predicate, second: Predicate, schema: ReleaseSchema
) -> Implied | Refuted | Undecided:
    """Whether φ₁ ⊑ φ₂ over every mechanism the schema allows."""
    if isinstance(second, Always) or first == UsesAny(frozenset()):
        return Implied()
    if isinstance(first, UsesAny) and isinstance(second, UsesAny):
        extra = first.attributes - second.attributes
        return _refuted(first, second, _using(extra, schema)) if extra else Implied()
    other = _tree(second)
    if _tree(first) == other:  # the texts could be equal by accident, see `conjunction`
        return Implied()
    one = _tree(_fewer(first, other, schema) if isinstance(first, UsesAny) else first)
    found = counterexample_search.search_counterexample(one, other, schema)
    if isinstance(found, str):
        found = z3_solver.solve_counterexample(one, other, schema, found)
    if found is None:
        return Implied()
    return Undecided(found) if isinstance(found, str) else _refuted(first, second, found)


def conjunction(predicates: Sequence[Predicate]) -> Predicate:
    """The predicate that matches what all of these match: the scope of a rule in one piece."""
    terms = [predicate for predicate in predicates if not isinstance(predicate, Always)]
    if len(terms) <= 1:
        return terms[0] if terms else Always()
    tree = AllOf(tuple(_tree(term) for term in terms))
    text = " && ".join(f"({_text(term)})" for term in terms)
    return Expression(text, tree, compile_tree(tree))


def _text(predicate: Predicate) -> str:
    match predicate:
        case Always():
            return "true"
        case UsesAny(attributes):
            uses = [f"{json.dumps(name)} in attributes" for name in sorted(attributes)]
            return " || ".join(uses) or "false"
        case Expression():
            return predicate.text


def _tree(predicate: Predicate) -> Tree:
    match predicate:
        case Always():
            return Constant(True)
        case UsesAny(attributes):
            return AnyOf(
                tuple(Membership(Constant(name), AttributeList()) for name in sorted(attributes))
            )
        case Expression():
            return predicate.tree


def _fewer(first: UsesAny, second: Tree, schema: ReleaseSchema) -> UsesAny:
    """Of the attributes that look alike to `second`, one is enough to find a difference."""
    universe = build_case_space((second,), schema).universes.get("attributes", ListUniverse((), ()))
    alike = sorted(first.attributes & schema.attributes - set(universe.named))
    return UsesAny(first.attributes.intersection(universe.named).union(alike[:1]))


def _using(attributes: frozenset[str], schema: ReleaseSchema) -> PredicateInput:
    plain = counterexample_search.complete_input({}, CaseSpace({}, {}, None), schema)
    return PredicateInput((min(attributes),), plain.labels, plain.mechanism, plain.by)


def _refuted(first: Predicate, second: Predicate, facts: PredicateInput) -> Refuted | Undecided:
    """Believe no counter-example that the evaluation of requests would not confirm."""
    try:
        confirmed = matches(first, facts) and not matches(second, facts)
    except TooManyStepsError as failure:
        return Undecided(str(failure))
    except PredicateFailed:
        confirmed = False
    if not confirmed:
        raise InvariantBroken(f"{facts} does not tell the two predicates apart")
    return Refuted(facts)
