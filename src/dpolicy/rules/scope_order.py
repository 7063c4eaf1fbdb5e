"""Orders of scopes, settings and units: one preorder for each factor of the rule product.

Generated scopes are compared by their attribute sets, CEL predicates by the solver. Predicates that
the solver cannot decide are incomparable. A stated order (`below`) is verified, never trusted. In a
preorder, equivalent elements share a class, and `above` is transitively closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dpolicy.policy.checker import CheckedPolicySet
from dpolicy.predicates.expression import Always, Expression, Predicate, UsesAny, reads_attribute
from dpolicy.predicates.implication.implication_check import Implied, Refuted, Undecided, implies
from dpolicy.privacy.units.calendar import Period
from dpolicy.privacy.units.privacy_units import (
    NeighbouringRelation,
    PrivacyUnit,
    can_collapse,
    period_within,
)
from dpolicy.releases.release_schema import PredicateInput, ReleaseSchema
from dpolicy.rules.sample_inputs import sample_predicate_inputs, truth_masks

#: Solver calls for one policy set. A call takes about a millisecond. Beyond the limit, predicates
#: are incomparable, which is sound and bounds the compile time.
MAX_SOLVER_CALLS = 3_000

#: Sample inputs for each predicate; one evaluation takes a fraction of a microsecond.
MAX_SAMPLES = 2_500

#: The empty scope.
EMPTY_SCOPE = UsesAny(frozenset())


@dataclass(frozen=True, slots=True)
class Preorder:
    """A preorder. `classes[i]` is the class of element i, `above[c]` the classes above class c."""

    classes: tuple[int, ...]
    above: tuple[tuple[int, ...], ...]

    def leq(self, smaller: int, larger: int) -> bool:
        """Return whether one element is inside another."""
        a, b = self.classes[smaller], self.classes[larger]
        return a == b or b in self.above[a]


def preorder_from(count: int, leq: Callable[[int, int], bool]) -> Preorder:
    """Build a preorder from a reflexive and transitive comparison."""
    up = [sum(1 << j for j in range(count) if i == j or leq(i, j)) for i in range(count)]
    return preorder_from_masks(up)


def preorder_from_masks(up: Sequence[int]) -> Preorder:
    """Build a preorder from bit masks: bit j of `up[i]` means that i is inside j; i is inside i."""
    classes: dict[int, int] = {}
    members = [classes.setdefault(mask, len(classes)) for mask in up]
    first = {number: element for element, number in reversed(list(enumerate(members)))}
    above = [
        tuple(sorted({members[j] for j in _bits(up[first[c]])} - {c})) for c in range(len(classes))
    ]
    return Preorder(tuple(members), tuple(above))


def _bits(mask: int) -> list[int]:
    positions = []
    while mask:
        low = mask & -mask
        positions.append(low.bit_length() - 1)
        mask ^= low
    return positions


@dataclass(slots=True)
class ScopeComparer:
    """Comparison of predicates with memoised results and a limit on solver calls.

    Sample inputs decide most comparisons without the solver: if one predicate is true where the
    other is false, it is not inside the other. Each expression adds one input that it matches.
    """

    schema: ReleaseSchema
    _inputs: list[PredicateInput] = field(default_factory=list)
    _truth: dict[Predicate, tuple[int, int, int]] = field(default_factory=dict)
    _implications: dict[tuple[Predicate, Predicate], Implied | Refuted | Undecided] = field(
        default_factory=dict
    )
    _solver_calls: int = 0

    def is_inside(self, smaller: Predicate, larger: Predicate) -> bool:
        """Return True only if every mechanism that matches `smaller` provably matches `larger`."""
        if isinstance(larger, Always) or smaller == larger:
            return True
        if isinstance(larger, UsesAny) and not isinstance(smaller, Expression):
            return isinstance(smaller, UsesAny) and smaller.attributes <= larger.attributes
        return isinstance(self.implication(smaller, larger), Implied)

    def never_matches(self, predicate: Predicate) -> bool:
        """Return True only if provably no mechanism of the schema matches the predicate."""
        return self.is_inside(predicate, EMPTY_SCOPE)

    def possible_matches(self, predicates: Sequence[Predicate]) -> list[tuple[int, int]]:
        """Return two bit masks per predicate: samples that match, and samples that may match.

        A predicate can be inside another only if its first mask is a subset of the other's second
        mask. Without CEL expressions the masks are zero, because attribute sets need no samples.
        """
        expressions = [p for p in predicates if isinstance(p, Expression)]
        if not expressions:
            return [(0, 0)] * len(predicates)
        self._inputs = self._inputs or sample_predicate_inputs(self.schema)
        for expression in expressions:
            answer = self._implications.get((expression, EMPTY_SCOPE))
            answer = answer or self._call_solver(expression, EMPTY_SCOPE)
            if isinstance(answer, Refuted) and len(self._inputs) < MAX_SAMPLES:
                self._inputs.append(answer.counterexample)
        return [self._evaluate_samples(predicate) for predicate in predicates]

    def implication(self, smaller: Predicate, larger: Predicate) -> Implied | Refuted | Undecided:
        """Return the solver's result, with a counter-example if it is refuted."""
        memoised = self._implications.get((smaller, larger))
        if memoised is not None:
            return memoised
        self._solver_calls += 1
        if self._solver_calls > MAX_SOLVER_CALLS:
            return Undecided("too many predicates to compare")
        return self._call_solver(smaller, larger)

    def _call_solver(self, smaller: Predicate, larger: Predicate) -> Implied | Refuted | Undecided:
        result = implies(smaller, larger, self.schema)
        self._implications[smaller, larger] = result
        return result

    def _evaluate_samples(self, predicate: Predicate) -> tuple[int, int]:
        masks = self._truth.get(predicate)
        if masks is None or masks[2] != len(self._inputs):
            true, failed = truth_masks(predicate, self._inputs)
            masks = self._truth[predicate] = (true, true | failed, len(self._inputs))
        return masks[0], masks[1]


def order_predicates(
    predicates: Sequence[Predicate], partitions: frozenset[str], comparer: ScopeComparer
) -> Preorder:
    """Order base scopes, or the settings of an extension.

    If a rule reads an attribute that is also a partition, its losses add up over all blocks of that
    partition. A rule that is split by the partition must not imply it (theory 1.5, A.4 and P8).
    """
    unsplit = [
        frozenset(name for name in partitions if reads_attribute(p, name)) for p in predicates
    ]
    up = _set_masks(predicates)
    expressions = [i for i, p in enumerate(predicates) if not isinstance(p, UsesAny)]
    possible = comparer.possible_matches(predicates)
    for i, predicate in enumerate(predicates):
        true, _ = possible[i]
        for j in expressions if isinstance(predicate, UsesAny) else range(len(predicates)):
            if not true & ~possible[j][1] and comparer.is_inside(predicate, predicates[j]):
                up[i] |= 1 << j
    if any(unsplit):
        for i, names in enumerate(unsplit):
            up[i] = sum(1 << j for j in _bits(up[i]) if names <= unsplit[j])
    return preorder_from_masks(_close_transitively(up))


def _set_masks(predicates: Sequence[Predicate]) -> list[int]:
    """Return, for each attribute set, the mask of its supersets: an AND over its attributes."""
    containing: dict[str, int] = {}
    all_sets = 0
    for position, predicate in enumerate(predicates):
        if isinstance(predicate, UsesAny):
            all_sets |= 1 << position
            for attribute in predicate.attributes:
                containing[attribute] = containing.get(attribute, 0) | 1 << position
    masks = []
    for position, predicate in enumerate(predicates):
        mask = 1 << position
        if isinstance(predicate, UsesAny):
            mask = all_sets
            for attribute in predicate.attributes:
                mask &= containing[attribute]
        masks.append(mask)
    return masks


def _close_transitively(up: list[int]) -> list[int]:
    """Close the masks under transitivity, which undecided comparisons can violate.

    This is sound for inputs on which some predicate fails, because such a request is denied.
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
    """Order units for implication between rules (theory 0.1).

    Removing one month of a user's data does not remove the user. So a rule on a larger unit implies
    a rule on a smaller unit only under the relation `change`, or if the policy requires additive
    mechanisms. `collapse` must not merge blocks of the smaller unit across blocks of the larger.
    """
    units = [checked.vocabulary.units[name] for name in names]
    additive = checked.policies.accounting.require_additive
    collapse = checked.policies.accounting.collapse
    covered = checked.vocabulary.covered

    def leq(a: int, b: int) -> bool:
        return (
            (names[a], names[b]) in covered
            and _are_comparable(units[a], units[b], additive)
            and (collapse is None or _collapse_keeps_order(units[a], units[b], collapse.period))
        )

    return preorder_from(len(names), leq)


def _are_comparable(a: PrivacyUnit, b: PrivacyUnit, additive: bool) -> bool:
    if a.relation is not b.relation:
        return False
    return a.relation is NeighbouringRelation.CHANGE or (
        a.relation is NeighbouringRelation.ADD_REMOVE and additive
    )


def _collapse_keeps_order(a: PrivacyUnit, b: PrivacyUnit, into: Period) -> bool:
    """Return whether every block of `a`, also a merged one, lies inside one block of `b`.

    `a` lies inside `b` before the merge (theory 1.5, A.4 and P9).
    """
    return (
        not can_collapse(a.period, into)
        or can_collapse(b.period, into)
        or period_within(into, b.period)
    )
