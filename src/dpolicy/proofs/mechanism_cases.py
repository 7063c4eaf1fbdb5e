"""Cases of a question: mechanisms that its scope contains, each with the rules that count it.

A cover is checked by one implication: the scope implies that the weights of the matching rules sum
to at least 1. A refuted implication gives a mechanism, which is the next case. So no search ever
enumerates all combinations of predicates, of which there can be 2ⁿ for n attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dpolicy.errors import InvalidValue, PredicateFailed
from dpolicy.predicates.expression import Expression, Predicate, matches
from dpolicy.predicates.implication.implication_check import (
    Implied,
    Undecided,
    conjunction,
    disjunction,
    implies,
    where_defined,
)
from dpolicy.proofs.proof_question import Question
from dpolicy.releases.release_schema import PredicateInput
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule import Rule

#: Cases of one question. An exact programme of this size takes seconds.
MAX_CASES = 120

#: Sets of rules that a cover with fractional weights may need for one case.
MAX_SUFFICIENT_SETS = 500


class UndecidedCover(Exception):
    """Neither a proof nor a case: the implication check gives up."""


@dataclass(frozen=True, slots=True)
class MechanismCase:
    """A mechanism in the scope of the question, and the numbers of the usable rules it matches."""

    mechanism: PredicateInput
    rules: frozenset[int]


@dataclass(slots=True)
class CaseSearch:
    """Search for mechanisms that weights do not cover; it keeps the cases that it returns."""

    policy: CompiledPolicy
    question: Question
    rules: Mapping[int, Rule]
    cases: list[MechanismCase] = field(default_factory=list)
    _failing: dict[Predicate, None] = field(default_factory=dict)
    _only_covered: bool = False

    def find_case(self, weights: Mapping[int, Fraction]) -> MechanismCase | None:
        """Return a mechanism that the policy can allow and the weights do not cover.

        None is a proof that there is none. Raise `UndecidedCover`, or `InvalidValue` (Q004).
        """
        cover = cover_predicate(self.rules, weights)
        while True:
            answer = implies(self._scope(), cover, self.policy.schema)
            if isinstance(answer, Implied):
                return None
            if isinstance(answer, Undecided):
                raise UndecidedCover(answer.reason)
            if not self._exclude(answer.counterexample):
                return self._add(answer.counterexample)

    def _scope(self) -> Predicate:
        """Return the scope of the question, without mechanisms that are known to be denied."""
        scope = self.question.scope
        if self._only_covered:
            rules = kept_rules(self.policy)
            scopes = dict.fromkeys(conjunction(rule.predicates) for rule in rules)
            scope = conjunction([scope, disjunction(list(scopes))])
        return where_defined(scope, list(self._failing))

    def _exclude(self, mechanism: PredicateInput) -> bool:
        """Return whether the policy denies the mechanism for what it is, and exclude its reason."""
        failing = [p for p in evaluated_predicates(self.policy) if _fails(p, mechanism)]
        if failing and self._failing.keys() >= set(failing):
            raise UndecidedCover(f"`{failing[0].text}` has no answer for some mechanisms")
        if failing:
            self._failing.update(dict.fromkeys(failing))
            return True
        if self._only_covered or self.policy.accounting.allow_uncovered:
            return False
        self._only_covered = not self.policy.cumulative.index.matching_rules(mechanism)
        return self._only_covered

    def _add(self, mechanism: PredicateInput) -> MechanismCase:
        if len(self.cases) >= MAX_CASES:
            message = f"the rules distinguish more than {MAX_CASES} cases of the question"
            raise InvalidValue("Q004", f"{message}; help: ask about a smaller scope")
        case = self.classify(mechanism)
        self.cases.append(case)
        return case

    def classify(self, mechanism: PredicateInput) -> MechanismCase:
        """Return the case of a mechanism. Raise `PredicateFailed`."""
        numbers = self.policy.cumulative.index.matching_rules(mechanism)
        return MechanismCase(mechanism, frozenset(numbers).intersection(self.rules))


def kept_rules(policy: CompiledPolicy) -> Iterator[Rule]:
    """Yield the cumulative rules that are enforced."""
    section = policy.cumulative
    return (section.rules[int(number)] for number in section.pruning.kept.nonzero()[0])


def evaluated_predicates(policy: CompiledPolicy) -> Iterator[Expression]:
    """Yield the predicates that can fail; one that fails denies the release."""
    for section in policy.sections:
        settings = (setting.predicate for axis in section.rules.axes for setting in axis)
        for predicate in (*(base.predicate for base in section.rules.bases), *settings):
            if isinstance(predicate, Expression):
                yield predicate


def _fails(predicate: Predicate, mechanism: PredicateInput) -> bool:
    try:
        matches(predicate, mechanism)
    except PredicateFailed:
        return True
    return False


def cover_predicate(rules: Mapping[int, Rule], weights: Mapping[int, Fraction]) -> Predicate:
    """Return the predicate of the mechanisms whose matching rules have weights of at least 1."""
    sets = sufficient_sets(sorted(weights.items(), key=lambda item: (-item[1], item[0])))
    return disjunction(
        [conjunction([p for rule in chosen for p in rules[rule].predicates]) for chosen in sets]
    )


def sufficient_sets(weights: Sequence[tuple[int, Fraction]]) -> list[tuple[int, ...]]:
    """Return the sets of rules with weights of at least 1 of which no rule can be left out.

    Weights are in descending order. Raise `UndecidedCover` if there are too many sets.
    """
    sets: list[tuple[int, ...]] = []
    stack: list[tuple[int, tuple[int, ...], Fraction]] = [(0, (), Fraction(0))]
    steps = 0
    while stack:
        steps += 1
        if steps > 40 * MAX_SUFFICIENT_SETS or len(sets) > MAX_SUFFICIENT_SETS:
            raise UndecidedCover("the cover has too many rules with fractional weights")
        position, chosen, total = stack.pop()
        if total >= 1:
            sets.append(chosen)  # in descending order, the last rule is the smallest
        elif position < len(weights) and total + sum(w for _, w in weights[position:]) >= 1:
            rule, weight = weights[position]
            stack.append((position + 1, chosen, total))
            stack.append((position + 1, (*chosen, rule), total + weight))
    return sets
