"""Scopes, settings and units → which lies inside which: one order for each factor of the product.

Generated scopes are compared by their attribute sets, predicates by the solver; what the solver
cannot decide is incomparable. A stated order (`below`) is verified, never trusted. Each order is a
preorder: equivalent elements share a class, and `above` is closed under going up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dpolicy.policy.checker import CheckedPolicySet
from dpolicy.predicates.expression import Always, Expression, Predicate, UsesAny, reads_attribute
from dpolicy.predicates.implication.implication_check import Implied, Refuted, Undecided, implies
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit
from dpolicy.releases.release_schema import PredicateInput, ReleaseSchema
from dpolicy.rules.sample_inputs import sample_predicate_inputs, truth_masks

#: Questions that a section may put to the solver. Each takes about a millisecond; past this the
#: rest is incomparable, which is sound and keeps compile times predictable.
MAX_QUESTIONS = 3_000

#: Mechanisms that predicates are tried on; each costs a fraction of a microsecond a predicate.
MAX_SAMPLES = 2_500

#: The scope that nothing lies in.
NOTHING = UsesAny(frozenset())


@dataclass(frozen=True, slots=True)
class Preorder:
    """`classes[i]` is the class of element i; `above[c]` the classes strictly above class c."""

    classes: tuple[int, ...]
    above: tuple[tuple[int, ...], ...]

    def leq(self, smaller: int, larger: int) -> bool:
        """Whether one element lies inside another."""
        a, b = self.classes[smaller], self.classes[larger]
        return a == b or b in self.above[a]


def preorder_from(count: int, leq: Callable[[int, int], bool]) -> Preorder:
    """The order of a few elements from a reflexive and transitive comparison."""
    up = [sum(1 << j for j in range(count) if i == j or leq(i, j)) for i in range(count)]
    return preorder_from_masks(up)


def preorder_from_masks(up: Sequence[int]) -> Preorder:
    """The order of elements from the bit mask of what lies above each, itself included."""
    classes: dict[int, int] = {}
    members = [classes.setdefault(mask, len(classes)) for mask in up]
    first = {number: element for element, number in reversed(list(enumerate(members)))}
    above = [
        tuple(sorted({members[j] for j in _bits(up[first[c]])} - {c})) for c in range(len(classes))
    ]
    return Preorder(tuple(members), tuple(above))


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


@dataclass(slots=True)
class ScopeComparer:
    """Answers whether one predicate lies inside another, and remembers the answer.

    Sampled mechanisms, and for each expression one that it matches, settle most questions without
    the solver: a predicate that is true where the other is false cannot lie inside it.
    """

    schema: ReleaseSchema
    _facts: list[PredicateInput] = field(default_factory=list)
    _truth: dict[Predicate, tuple[int, int, int]] = field(default_factory=dict)
    _answers: dict[tuple[Predicate, Predicate], Implied | Refuted | Undecided] = field(
        default_factory=dict
    )
    _asked: int = 0

    def is_inside(self, smaller: Predicate, larger: Predicate) -> bool:
        """Whether every mechanism that matches the first is known to match the second."""
        if isinstance(larger, Always) or smaller == larger:
            return True
        if isinstance(larger, UsesAny) and not isinstance(smaller, Expression):
            return isinstance(smaller, UsesAny) and smaller.attributes <= larger.attributes
        return isinstance(self.implication(smaller, larger), Implied)

    def never_matches(self, predicate: Predicate) -> bool:
        """Whether no mechanism that the schema allows lies in a scope."""
        return self.is_inside(predicate, NOTHING)

    def possible_matches(self, predicates: Sequence[Predicate]) -> list[tuple[int, int]]:
        """For each predicate the samples that match, and those that could count as matching.

        One whose first mask is not within the second of another cannot lie inside it. Where there
        are only attribute sets nothing needs to be sampled.
        """
        expressions = [p for p in predicates if isinstance(p, Expression)]
        if not expressions:
            return [(0, 0)] * len(predicates)
        self._facts = self._facts or sample_predicate_inputs(self.schema)
        for expression in expressions:
            found = self._answers.get((expression, NOTHING)) or self._ask(expression, NOTHING)
            if isinstance(found, Refuted) and len(self._facts) < MAX_SAMPLES:
                self._facts.append(found.counterexample)
        return [self._truth_of(predicate) for predicate in predicates]

    def implication(self, smaller: Predicate, larger: Predicate) -> Implied | Refuted | Undecided:
        """What the solver says, with its counter-example."""
        known = self._answers.get((smaller, larger))
        if known is not None:
            return known
        self._asked += 1
        if self._asked > MAX_QUESTIONS:
            return Undecided("too many predicates to compare")
        return self._ask(smaller, larger)

    def _ask(self, smaller: Predicate, larger: Predicate) -> Implied | Refuted | Undecided:
        found = implies(smaller, larger, self.schema)
        self._answers[smaller, larger] = found
        return found

    def _truth_of(self, predicate: Predicate) -> tuple[int, int]:
        known = self._truth.get(predicate)
        if known is None or known[2] != len(self._facts):
            true, failed = truth_masks(predicate, self._facts)
            known = self._truth[predicate] = (true, true | failed, len(self._facts))
        return known[0], known[1]


def order_predicates(
    predicates: Sequence[Predicate], partitions: frozenset[str], comparison: ScopeComparer
) -> Preorder:
    """The order of base scopes, or of the settings of an extension.

    A rule that reads an attribute which is also a partition is counted over all of its blocks at
    once, so one that splits them must not imply it (theory 1.5, A.4 and P8).
    """
    whole = [frozenset(name for name in partitions if reads_attribute(p, name)) for p in predicates]
    up = _set_masks(predicates)
    others = [i for i, p in enumerate(predicates) if not isinstance(p, UsesAny)]
    possible = comparison.possible_matches(predicates)
    for i, predicate in enumerate(predicates):
        true, _ = possible[i]
        for j in others if isinstance(predicate, UsesAny) else range(len(predicates)):
            if not true & ~possible[j][1] and comparison.is_inside(predicate, predicates[j]):
                up[i] |= 1 << j
    if any(whole):
        for i, blocks in enumerate(whole):
            up[i] = sum(1 << j for j in _bits(up[i]) if blocks <= whole[j])
    return preorder_from_masks(_closed(up))


def _set_masks(predicates: Sequence[Predicate]) -> list[int]:
    """For each attribute set the mask of the sets that contain it: an AND over its attributes."""
    containing: dict[str, int] = {}
    every = 0
    for position, predicate in enumerate(predicates):
        if isinstance(predicate, UsesAny):
            every |= 1 << position
            for attribute in predicate.attributes:
                containing[attribute] = containing.get(attribute, 0) | 1 << position
    masks = []
    for position, predicate in enumerate(predicates):
        mask = 1 << position
        if isinstance(predicate, UsesAny):
            mask = every
            for attribute in predicate.attributes:
                mask &= containing[attribute]
        masks.append(mask)
    return masks


def _closed(up: list[int]) -> list[int]:
    """Going up twice must be going up once, also where the solver left a question undecided.

    Facts on which some predicate has no answer do not count: such a request is denied anyway.
    """
    changed = True
    while changed:
        changed = False
        for i, mask in enumerate(up):
            wider = mask
            for j in _bits(mask):
                wider |= up[j]
            if wider != mask:
                up[i], changed = wider, True
    return up


def order_units(names: Sequence[str], checked: CheckedPolicySet) -> Preorder:
    """The order of units as rules may use it (theory 0.1).

    Deleting a month of somebody's data is not deleting somebody, so a rule on a larger unit implies
    one on a smaller unit only if both are about changes, or if every mechanism must be additive.
    """
    units = [checked.vocabulary.units[name] for name in names]
    additive = checked.policies.accounting.require_additive
    covered = checked.vocabulary.covered

    def leq(a: int, b: int) -> bool:
        return (names[a], names[b]) in covered and _comparable(units[a], units[b], additive)

    return preorder_from(len(names), leq)


def _comparable(a: PrivacyUnit, b: PrivacyUnit, additive: bool) -> bool:
    if a.relation is not b.relation:
        return False
    return a.relation is NeighbouringRelation.CHANGE or (
        a.relation is NeighbouringRelation.ADD_REMOVE and additive
    )
