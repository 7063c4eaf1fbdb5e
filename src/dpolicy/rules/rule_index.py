"""Index from predicate input to the kept rules that match it.

An inverted index maps attributes to base scopes. Every other predicate of the section is evaluated
once, even if all its rules are pruned, because an evaluation error must deny the request whether or
not the rule is kept. The index memoises the kept rules of a base under a pattern of settings, so a
lookup takes time in the number of matching rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dpolicy.errors import PredicateFailed
from dpolicy.predicates.expression import Always, Predicate, UsesAny, matches
from dpolicy.releases.release_schema import PredicateInput
from dpolicy.rules.pruning import PruningResult, bases_with_kept_rules
from dpolicy.rules.rule import RuleProduct

#: Whether each setting of each extension matches.
Pattern = tuple[tuple[bool, ...], ...]


@dataclass(frozen=True, slots=True)
class ScopeMatch:
    """Base scopes and settings that a mechanism matches; they determine its rules.

    `witnesses` are further kept rules: those that imply a pruned rule that may match.
    """

    base_scopes: tuple[int, ...]
    pattern: Pattern
    witnesses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleIndex:
    """Index of the kept rules of one section."""

    rules: RuleProduct
    pruned: PruningResult
    by_attribute: dict[str, tuple[int, ...]]
    everywhere: tuple[int, ...]
    by_predicate: tuple[tuple[Predicate, tuple[int, ...]], ...]
    _kept_by_base: dict[tuple[int, Pattern], NDArray[np.intp]] = field(default_factory=dict)

    def matching_rules(self, predicate_input: PredicateInput) -> list[int]:
        """Return the numbers of the kept rules that match, in increasing order.

        Raise `PredicateFailed` if evaluating any predicate of the section fails.
        """
        numbers: list[int] = self.rules_for_match(self.match(predicate_input)).tolist()
        return numbers

    def match(self, predicate_input: PredicateInput) -> ScopeMatch:
        """Return the base scopes and settings that match. Raise `PredicateFailed`."""
        return self._match(predicate_input, matches)

    def possible_match(self, predicate_input: PredicateInput) -> ScopeMatch:
        """Return the base scopes and settings that match or whose predicate fails.

        A recorded release is charged to all of them: if its record has no statement about a label,
        every value of the label is possible. A pruned rule may match although the rule that implies
        it does not, because the implication holds for predicates that do not fail. The release is
        then charged to the implying rule.
        """
        try:
            return self.match(predicate_input)
        except PredicateFailed:
            match = self._match(predicate_input, possibly_matches)
            return replace(match, witnesses=self._find_witnesses(predicate_input, match.pattern))

    def _find_witnesses(self, predicate_input: PredicateInput, pattern: Pattern) -> tuple[int, ...]:
        """Return the kept rules that imply, or are, the rules that may match."""
        combinations = np.flatnonzero(_combine(pattern))
        witnesses: set[int] = set()
        for number, base in enumerate(self.rules.bases):
            if possibly_matches(base.predicate, predicate_input):
                possible = number * self.rules.width + combinations
                witnesses.update(self.pruned.implied_by[possible].tolist())
        return tuple(sorted(witnesses))

    def _match(
        self, predicate_input: PredicateInput, test: Callable[[Predicate, PredicateInput], bool]
    ) -> ScopeMatch:
        pattern = tuple(
            tuple(test(setting.predicate, predicate_input) for setting in axis)
            for axis in self.rules.axes
        )
        bases = set(self.everywhere)
        for predicate, numbers in self.by_predicate:
            if test(predicate, predicate_input):
                bases.update(numbers)
        for attribute in predicate_input.attributes:
            bases.update(self.by_attribute.get(attribute, ()))
        return ScopeMatch(tuple(sorted(bases)), pattern)

    def rules_for_match(self, match: ScopeMatch) -> NDArray[np.intp]:
        """Return the kept rules of a match, in increasing order."""
        parts = [self.rules_for_base(base, match.pattern) for base in match.base_scopes]
        if match.witnesses:
            return np.unique(np.concatenate([*parts, np.array(match.witnesses, dtype=np.intp)]))
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.intp)

    def contains(self, match: ScopeMatch, number: int) -> bool:
        """Return whether a kept rule is among the rules of a match."""
        if number in match.witnesses:
            return True
        base, combination = divmod(number, self.rules.width)
        if base not in match.base_scopes:
            return False
        for axis in reversed(match.pattern):
            combination, position = divmod(combination, len(axis))
            if not axis[position]:
                return False
        return True

    def rules_for_base(self, base: int, pattern: Pattern) -> NDArray[np.intp]:
        """Return the kept rules of one base scope under the settings that match."""
        numbers = self._kept_by_base.get((base, pattern))
        if numbers is None:
            start = base * self.rules.width
            kept = self.pruned.kept[start : start + self.rules.width]
            numbers = start + np.flatnonzero(kept & _combine(pattern))
            self._kept_by_base[base, pattern] = numbers
        return numbers


def _combine(pattern: Pattern) -> NDArray[np.bool_]:
    """Return which combinations of settings match, numbered as in `RuleProduct`."""
    combinations = np.ones(1, dtype=bool)
    for axis in pattern:
        combinations = np.logical_and.outer(combinations, np.array(axis)).reshape(-1)
    return combinations


def possibly_matches(predicate: Predicate, predicate_input: PredicateInput) -> bool:
    """Return False only if the predicate is false for all values of the unknown labels."""
    try:
        return matches(predicate, predicate_input)
    except PredicateFailed:
        return True


def build_index(rules: RuleProduct, pruned: PruningResult) -> RuleIndex:
    """Build the index over the base scopes that have a kept rule."""
    has_kept = bases_with_kept_rules(rules, pruned)
    by_attribute: dict[str, list[int]] = {}
    by_predicate: dict[Predicate, list[int]] = {}
    everywhere: list[int] = []
    for number, base in enumerate(rules.bases):
        match base.predicate:
            case Always():
                everywhere += [number] if has_kept[number] else []
            case UsesAny(attributes=attributes):
                for attribute in attributes if has_kept[number] else ():
                    by_attribute.setdefault(attribute, []).append(number)
            case predicate:
                by_predicate.setdefault(predicate, []).extend([number] if has_kept[number] else [])
    return RuleIndex(
        rules,
        pruned,
        {key: tuple(numbers) for key, numbers in by_attribute.items()},
        tuple(everywhere),
        tuple((predicate, tuple(numbers)) for predicate, numbers in by_predicate.items()),
    )
