"""Implication check: whether every mechanism that matches one predicate matches another.

The order of scopes (φ₁ ⊑ φ₂), and with it pruning, depends on this check. It returns `Implied` only
with a proof and `Refuted` only with a counterexample. It uses set logic for generated scopes, an
exact search for other predicates, and a solver for predicates on parts of free text.
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
from dpolicy.predicates.tree import AllOf, AnyOf, AttributeList, Constant, Membership, Not, Tree
from dpolicy.releases.release_schema import PredicateInput, ReleaseSchema


@dataclass(frozen=True, slots=True)
class Implied:
    """Result: every mechanism that matches the first predicate matches the second."""


@dataclass(frozen=True, slots=True)
class Refuted:
    """Result: a mechanism matches the first predicate and not the second."""

    counterexample: PredicateInput


@dataclass(frozen=True, slots=True)
class Undecided:
    """Result: there is neither a proof nor a counterexample."""

    reason: str


def implies(
    first: Predicate, second: Predicate, schema: ReleaseSchema
) -> Implied | Refuted | Undecided:
    """Check φ₁ ⊑ φ₂ over all mechanisms that the schema allows."""
    if isinstance(second, Always) or first == UsesAny(frozenset()):
        return Implied()
    if isinstance(first, UsesAny) and isinstance(second, UsesAny):
        extra = first.attributes - second.attributes
        return _confirm(first, second, _input_with(extra, schema)) if extra else Implied()
    second_tree = _to_tree(second)
    if _to_tree(first) == second_tree:  # equal texts of conjunctions can have different trees
        return Implied()
    if isinstance(first, UsesAny):
        first_tree = _to_tree(_drop_equivalent(first, second_tree, schema))
    else:
        first_tree = _to_tree(first)
    result = counterexample_search.search_counterexample(first_tree, second_tree, schema)
    if isinstance(result, str):
        result = z3_solver.solve_counterexample(first_tree, second_tree, schema, result)
    if result is None:
        return Implied()
    return Undecided(result) if isinstance(result, str) else _confirm(first, second, result)


def conjunction(predicates: Sequence[Predicate]) -> Predicate:
    """Return the predicate that matches a mechanism if all of the predicates match it."""
    terms = [predicate for predicate in predicates if not isinstance(predicate, Always)]
    if len(terms) <= 1:
        return terms[0] if terms else Always()
    tree = AllOf(tuple(_to_tree(term) for term in terms))
    text = " && ".join(f"({_to_text(term)})" for term in terms)
    return Expression(text, tree, compile_tree(tree))


def disjunction(predicates: Sequence[Predicate]) -> Predicate:
    """Return the predicate that matches a mechanism if any of the predicates matches it."""
    if any(isinstance(predicate, Always) for predicate in predicates):
        return Always()
    if all(isinstance(predicate, UsesAny) for predicate in predicates):
        names = [predicate.attributes for predicate in predicates if isinstance(predicate, UsesAny)]
        return UsesAny(frozenset[str]().union(*names))
    if len(predicates) == 1:
        return predicates[0]
    tree = AnyOf(tuple(_to_tree(predicate) for predicate in predicates))
    text = " || ".join(f"({_to_text(predicate)})" for predicate in predicates)
    return Expression(text, tree, compile_tree(tree))


def where_defined(predicate: Predicate, others: Sequence[Predicate]) -> Predicate:
    """Return the predicate with an evaluation error wherever one of the others has one.

    The check ignores inputs on which a predicate fails, as the decision point denies them.
    """
    guards = [other for other in others if isinstance(other, Expression)]
    if not guards:
        return predicate
    terms = [AnyOf((guard.tree, Not(guard.tree))) for guard in guards]
    tree = AllOf((_to_tree(predicate), *terms))
    parts = [_to_text(predicate), *(f"{guard.text}) || !({guard.text}" for guard in guards)]
    return Expression(" && ".join(f"({part})" for part in parts), tree, compile_tree(tree))


def _to_text(predicate: Predicate) -> str:
    match predicate:
        case Always():
            return "true"
        case UsesAny(attributes):
            uses = [f"{json.dumps(name)} in attributes" for name in sorted(attributes)]
            return " || ".join(uses) or "false"
        case Expression():
            return predicate.text


def _to_tree(predicate: Predicate) -> Tree:
    match predicate:
        case Always():
            return Constant(True)
        case UsesAny(attributes):
            return AnyOf(
                tuple(Membership(Constant(name), AttributeList()) for name in sorted(attributes))
            )
        case Expression():
            return predicate.tree


def _drop_equivalent(first: UsesAny, second: Tree, schema: ReleaseSchema) -> UsesAny:
    """Keep one of the attributes that `second` cannot distinguish: one is enough for a search."""
    universe = build_case_space((second,), schema).universes.get("attributes", ListUniverse((), ()))
    equivalent = sorted(first.attributes & schema.attributes - set(universe.named))
    return UsesAny(first.attributes.intersection(universe.named).union(equivalent[:1]))


def _input_with(attributes: frozenset[str], schema: ReleaseSchema) -> PredicateInput:
    """Return a valid input with one of the attributes."""
    default = counterexample_search.complete_input({}, CaseSpace({}, {}, None), schema)
    return PredicateInput((min(attributes),), default.labels, default.mechanism, default.by)


def _confirm(
    first: Predicate, second: Predicate, counterexample: PredicateInput
) -> Refuted | Undecided:
    """Confirm a counterexample with the evaluator that decides requests."""
    try:
        confirmed = matches(first, counterexample) and not matches(second, counterexample)
    except TooManyStepsError as failure:
        return Undecided(str(failure))
    except PredicateFailed:
        confirmed = False
    if not confirmed:
        raise InvariantBroken(f"{counterexample} does not distinguish the two predicates")
    return Refuted(counterexample)
