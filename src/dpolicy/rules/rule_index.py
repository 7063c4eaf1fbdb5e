"""Facts of a mechanism → the kept rules it matches: the product of the factors, read backwards.

Attributes find their base scopes through an inverted index, and every other predicate of the
section is evaluated once, also where all its rules are pruned: an evaluation error must deny the
request whether or not the rule is kept. What one base rule adds under one pattern of matching
settings is looked up once and remembered, so the time is that of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpolicy.predicates.expression import Always, Predicate, UsesAny, matches
from dpolicy.releases.release_schema import PredicateInput
from dpolicy.rules.pruning import PruningResult, bases_with_kept_rules
from dpolicy.rules.rule import RuleProduct

#: For each setting of each extension, whether it matches.
Pattern = tuple[tuple[bool, ...], ...]


@dataclass(frozen=True, slots=True)
class ScopeMatch:
    """Which base scopes and which settings a mechanism lies in: all that decides its rules."""

    base_scopes: tuple[int, ...]
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class RuleIndex:
    """Finds the kept rules of one section by the facts of a mechanism."""

    rules: RuleProduct
    pruned: PruningResult
    by_attribute: dict[str, tuple[int, ...]]
    everywhere: tuple[int, ...]
    by_predicate: tuple[tuple[Predicate, tuple[int, ...]], ...]
    _answers: dict[tuple[int, Pattern], NDArray[np.intp]] = field(default_factory=dict)

    def matching_rules(self, facts: PredicateInput) -> list[int]:
        """The numbers of the kept rules in whose scope the mechanism lies, in rising order.

        Raises `PredicateFailed` if any predicate of the section has no answer.
        """
        found: list[int] = self.rules_for_match(self.match(facts)).tolist()
        return found

    def match(self, facts: PredicateInput) -> ScopeMatch:
        """Where a mechanism lies. Raises `PredicateFailed`."""
        pattern = tuple(
            tuple(matches(setting.predicate, facts) for setting in axis) for axis in self.rules.axes
        )
        bases = set(self.everywhere)
        for predicate, numbers in self.by_predicate:
            if matches(predicate, facts):
                bases.update(numbers)
        for attribute in facts.attributes:
            bases.update(self.by_attribute.get(attribute, ()))
        return ScopeMatch(tuple(sorted(bases)), pattern)

    def rules_for_match(self, match: ScopeMatch) -> NDArray[np.intp]:
        """The kept rules of a match, in rising order."""
        found = [self.rules_for_base(base, match.pattern) for base in match.base_scopes]
        return np.concatenate(found) if found else np.empty(0, dtype=np.intp)

    def lies_in(self, match: ScopeMatch, number: int) -> bool:
        """Whether a kept rule is among those of a match."""
        base, combination = divmod(number, self.rules.width)
        if base not in match.base_scopes:
            return False
        for axis in reversed(match.pattern):
            combination, position = divmod(combination, len(axis))
            if not axis[position]:
                return False
        return True

    def rules_for_base(self, base: int, pattern: Pattern) -> NDArray[np.intp]:
        """The kept rules of one base scope under the settings that match."""
        answer = self._answers.get((base, pattern))
        if answer is None:
            combinations = np.ones(1, dtype=bool)
            for axis in pattern:
                combinations = np.logical_and.outer(combinations, np.array(axis)).reshape(-1)
            start = base * self.rules.width
            kept = self.pruned.kept[start : start + self.rules.width]
            answer = start + np.flatnonzero(kept & combinations)
            self._answers[base, pattern] = answer
        return answer


def build_index(rules: RuleProduct, pruned: PruningResult) -> RuleIndex:
    """Invert the base scopes that have a kept rule."""
    alive = bases_with_kept_rules(rules, pruned)
    by_attribute: dict[str, list[int]] = {}
    by_predicate: dict[Predicate, list[int]] = {}
    everywhere: list[int] = []
    for number, base in enumerate(rules.bases):
        match base.predicate:
            case Always():
                everywhere += [number] if alive[number] else []
            case UsesAny(attributes=attributes):
                for attribute in attributes if alive[number] else ():
                    by_attribute.setdefault(attribute, []).append(number)
            case predicate:
                by_predicate.setdefault(predicate, []).extend([number] if alive[number] else [])
    return RuleIndex(
        rules,
        pruned,
        _frozen(by_attribute.items()),
        tuple(everywhere),
        tuple((predicate, tuple(numbers)) for predicate, numbers in by_predicate.items()),
    )


def _frozen(entries: Iterable[tuple[str, list[int]]]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(numbers) for key, numbers in entries}
