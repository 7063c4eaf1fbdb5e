"""A policy set, compiled and spelled out by the naive twin, and the laws that join the two.

Every check returns what it found wrong, in words, so that a canary can ask which check caught it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from random import Random
from typing import Any

import numpy as np
from tests.properties.random_policies import (
    World,
    certificates,
    random_mechanism,
    random_policies,
    random_world,
    rule_count,
)
from tests.properties.theorem_a import blocks_covered, bound_covered, unit_covered
from tests.reference import rules as twin

from dpolicy.errors import PredicateFailed
from dpolicy.policy.checker import CheckedPolicySet, check_policies
from dpolicy.policy.parser import parse_policies
from dpolicy.predicates.expression import Predicate, matches
from dpolicy.privacy.certificates import QUANTA_PER_UNIT, Notion
from dpolicy.privacy.thresholds import BudgetBound
from dpolicy.releases.release_schema import PredicateInput
from dpolicy.rules.compiler import compile_policy, order_factors
from dpolicy.rules.expansion import expand
from dpolicy.rules.pruning import FactorOrders, PruningResult, prune
from dpolicy.rules.rule import Rule, RuleProduct
from dpolicy.rules.rule_index import RuleIndex, build_index
from dpolicy.rules.scope_order import ScopeComparer
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.yaml_reader import Source

#: How a canary replaces two stages of compilation; each sees what the real one sees.
Arranger = Callable[[RuleProduct, CheckedPolicySet, ScopeComparer], FactorOrders]
Pruner = Callable[[RuleProduct, FactorOrders], PruningResult]


@dataclass(frozen=True)
class Truth:
    """What every predicate says of every mechanism of a world, as bit masks."""

    facts: tuple[twin.Mechanism, ...]
    _known: dict[str, tuple[int, int]] = field(default_factory=dict)

    def of(self, text: str) -> tuple[int, int]:
        """The mechanisms that match, and those on which there is no answer."""
        if text not in self._known:
            true = failed = 0
            for position, fact in enumerate(self.facts):
                try:
                    true |= twin.predicate(text)(fact) << position
                except KeyError:
                    failed |= 1 << position
            self._known[text] = true, failed
        return self._known[text]

    def inside(self, smaller: Sequence[str], larger: Sequence[str], denied: int) -> bool:
        """Whether all that match the first match the second; what is denied anyway is left out."""
        inner, outer = ~denied, ~denied
        for text in smaller:
            inner &= self.of(text)[0]
        for text in larger:
            outer &= self.of(text)[0]
        return inner & ~outer & ((1 << len(self.facts)) - 1) == 0


@dataclass(frozen=True)
class Subject:
    """One section of one policy set, both ways: rule n of the code is rule n of the twin."""

    policy: twin.PolicyDict
    world: World
    truth: Truth
    section: str
    rules: RuleProduct
    pruned: PruningResult
    index: RuleIndex

    @cached_property
    def compiled(self) -> list[Rule]:
        """The rules of the code."""
        return list(self.rules)

    @cached_property
    def spelled(self) -> list[twin.Rule]:
        """The rules of the twin, in its own order."""
        return twin.expand(self.policy, self.section)

    @cached_property
    def naive(self) -> list[twin.Rule]:
        """The rules of the twin, in the order of the code's."""
        spelled = {(rule.name, rule.unit): rule for rule in self.spelled}
        return [spelled[rule.name, rule.unit] for rule in self.compiled]

    @cached_property
    def translated(self) -> list[twin.Rule]:
        """The twin's rules with the thresholds of the code."""
        known = {id(rule.bound): in_fractions(rule.bound) for rule in self.compiled}
        return [
            twin.Rule(r.name, r.unit, n.predicates, n.budget, r.each_release, *known[id(r.bound)])
            for r, n in zip(self.compiled, self.naive, strict=True)
        ]

    @cached_property
    def trusting(self) -> Subject:
        """The same with the thresholds of the code, for profiles that the twin does not know."""
        other = replace(self)
        other.__dict__["naive"] = self.translated
        return other

    @cached_property
    def kept(self) -> list[int]:
        """The numbers of the kept rules."""
        return [int(number) for number in np.flatnonzero(self.pruned.kept)]

    @cached_property
    def denied(self) -> int:
        """The mechanisms on which some predicate of the section has no answer."""
        failed = 0
        for text in {text for rule in self.naive for text in rule.predicates}:
            failed |= self.truth.of(text)[1]
        return failed


def in_fractions(
    bound: BudgetBound,
) -> tuple[tuple[dict[twin.Key, Fraction], ...], Fraction | None]:
    """A bound of the code in the words of the twin."""
    clauses = tuple(
        {
            c.order if c.notion is Notion.RENYI else str(c.notion): Fraction(most, QUANTA_PER_UNIT)
            for c, most in clause
        }
        for clause in bound.clauses
    )
    return clauses, bound.delta


def subjects(
    seed: int,
    policies_in_a_world: int,
    *,
    arranger: Arranger = order_factors,
    pruner: Pruner = prune,
    profile: str = "classic",
) -> Iterator[Subject]:
    """The sections of several random policy sets in one random world.

    Every tenth set goes through `compile_policy` as a whole. The others pass the same stages one
    by one and share what was learned of predicates, which is most of the time.
    """
    random = Random(seed)
    world = random_world(random)
    accounting = {**world.head["accounting"], "profile": profile}
    world = replace(world, head={**world.head, "accounting": accounting})
    truth = Truth(world.facts)
    comparison: ScopeComparer | None = None
    for number in range(policies_in_a_world):
        policy = random_policies(random, world)
        if number % 10 == 0 and pruner is prune and arranger is order_factors:
            yield from whole(policy, world, truth)
        else:
            stages = arranger, pruner
            comparison = yield from staged(policy, world, truth, comparison, stages)


def whole(policy: twin.PolicyDict, world: World, truth: Truth) -> Iterator[Subject]:
    """The sections of a text, as everybody compiles it."""
    made = compile_policy([Source("policy.json", json.dumps(policy))])
    for name, s in zip(("policies", "each-release"), made.sections, strict=True):
        yield Subject(policy, world, truth, name, s.rules, s.pruning, s.index)


def staged(
    policy: twin.PolicyDict,
    world: World,
    truth: Truth,
    comparison: ScopeComparer | None,
    stages: tuple[Arranger, Pruner],
) -> Generator[Subject, None, ScopeComparer]:
    """The sections of a text, stage by stage; returns the comparison for the next set."""
    found = DiagnosticCollector()
    read = parse_policies([Source("policy.json", json.dumps(policy))], found)
    assert read is not None, found.sorted_diagnostics
    checked = check_policies(read, found)
    comparison = comparison or ScopeComparer(checked.vocabulary.schema)
    arranger, pruner = stages
    for name, section in (("policies", read.policies), ("each-release", read.each_release)):
        rules = expand(checked, section, found)
        assert not found.errors, found.errors
        pruned = pruner(rules, arranger(rules, checked, comparison))
        yield Subject(policy, world, truth, name, rules, pruned, build_index(rules, pruned))
    return comparison


def wrong_size(subject: Subject) -> list[str]:
    """|R| is the formula, and both sides have the same rules."""
    expected = rule_count(subject.policy, subject.section)
    spelled = subject.spelled
    names = sorted((rule.name, rule.unit) for rule in subject.compiled)
    if not expected == len(subject.rules) == len(spelled):
        return [
            f"{len(subject.rules)} rules, {len(spelled)} spelled out, {expected} by the formula"
        ]
    if names != sorted((rule.name, rule.unit) for rule in spelled):
        return [f"names differ: {names}"]
    return []


def wrong_thresholds(subject: Subject) -> list[str]:
    """The code's thresholds are the twin's, or one quantum less where a logarithm is in them."""
    found = []
    for naive, real in zip(subject.naive, subject.translated, strict=True):
        pairs = zip(naive.clauses, real.clauses, strict=True)
        alike = all(
            a.keys() == b.keys() and all(0 <= a[key] - b[key] <= twin.QUANTUM for key in a)
            for a, b in pairs
        )
        if (naive.delta is None) != (real.delta is None) or not alike:
            found.append(f"{naive.name}: {naive.clauses} became {real.clauses}")
        elif (
            naive.delta and real.delta and not 0 <= naive.delta - real.delta <= naive.delta / 2**40
        ):
            found.append(f"{naive.name}: δ-side {naive.delta} became {real.delta}")
    return found


def wrong_witnesses(subject: Subject) -> list[str]:
    """Every pruned rule has a kept witness that implies it by Theorem A."""
    found = []
    for number, rule in enumerate(subject.naive):
        witness = int(subject.pruned.implied_by[number])
        if subject.pruned.kept[number]:
            if witness != number:
                found.append(f"{rule.name} is kept and has a witness")
        elif not subject.pruned.kept[witness]:
            found.append(f"the witness of {rule.name} is pruned")
        elif not implied(subject, rule, subject.naive[witness]):
            found.append(f"{rule.name} ({rule.unit}) by {subject.naive[witness].name}")
    return found


def implied(subject: Subject, inner: twin.Rule, outer: twin.Rule) -> bool:
    """Theorem A for one pair, the scopes as wholes."""
    return (
        bound_covered(outer, inner)
        and unit_covered(subject.policy, inner.unit, outer.unit)
        and blocks_covered(subject.policy, inner.predicates, outer.predicates)
        and subject.truth.inside(inner.predicates, outer.predicates, subject.denied)
    )


def implied_by_factors(subject: Subject, inner: twin.Rule, outer: twin.Rule) -> bool:
    """The same with every factor of the scopes compared by itself, as pruning does."""
    return (
        unit_covered(subject.policy, inner.unit, outer.unit)
        and bound_covered(outer, inner)
        and all(
            blocks_covered(subject.policy, (a,), (b,))
            and subject.truth.inside((a,), (b,), subject.denied)
            for a, b in zip(inner.predicates, outer.predicates, strict=True)
        )
    )


def needless(subject: Subject) -> list[str]:
    """No kept rule is implied by another kept rule, so of equal rules exactly one is kept."""
    return [
        f"{subject.naive[a].name} is implied by {subject.naive[b].name}, and both are kept"
        for a in subject.kept
        for b in subject.kept
        if a != b and implied_by_factors(subject, subject.naive[a], subject.naive[b])
    ]


def wrong_matches(subject: Subject, asked: Sequence[twin.Mechanism]) -> list[str]:
    """The index, a scan with the code's predicates, and the twin find the same kept rules.

    A section without rules is left out: its settings may still fail, and then the index denies.
    """
    found: list[str] = []
    if not subject.compiled:
        return found
    for mechanism in asked:
        facts = as_facts(mechanism)
        indexed = _indexed(subject.index, facts)
        scanned = _scanned(subject.compiled, partial(_code_says, facts))
        naive = _scanned(subject.naive, partial(_twin_says, mechanism))
        kept = None if naive is None else [n for n in naive if subject.pruned.kept[n]]
        if scanned != naive or indexed != kept:
            found.append(f"{facts}: index {indexed}, scan {scanned}, twin {naive}")
    return found


def _code_says(facts: PredicateInput, part: Predicate) -> bool:
    return matches(part, facts)


def _twin_says(mechanism: twin.Mechanism, text: str) -> bool:
    return twin.predicate(text)(mechanism)


def _indexed(index: RuleIndex, facts: PredicateInput) -> list[int] | None:
    try:
        return index.matching_rules(facts)
    except PredicateFailed:
        return None


def _scanned(
    rules: Sequence[Rule] | Sequence[twin.Rule], says: Callable[[Any], bool]
) -> list[int] | None:
    """The numbers of the rules that match; None where any predicate of any rule fails."""
    try:
        answers = [[says(part) for part in rule.predicates] for rule in rules]
    except (PredicateFailed, KeyError):
        return None
    return [number for number, answer in enumerate(answers) if all(answer)]


def as_facts(mechanism: twin.Mechanism) -> PredicateInput:
    """A mechanism as the code sees it."""
    used = tuple(sorted(mechanism.attributes))
    return PredicateInput(used, mechanism.labels, mechanism.kind, mechanism.by)


def random_releases(
    random: Random, subject: Subject, count: int
) -> list[tuple[twin.Mechanism, ...]]:
    """Releases of one or two mechanisms, none of which has a predicate fail on it."""
    keys = certificates(subject.policy, subject.naive)
    fine = [f for n, f in enumerate(subject.world.facts) if not subject.denied >> n & 1]
    if not fine or not subject.naive:
        return []
    # Half of the time all costs are drawn to one rule, so that they fill it rather than any.
    rules = subject.naive if random.random() < 0.5 else [random.choice(subject.naive)]
    return [
        tuple(
            random_mechanism(random, subject.world, rules, keys, random.choice(fine))
            for _ in range(random.choice((1, 1, 2)))
        )
        for _ in range(count)
    ]


def wrong_decisions(
    subject: Subject, rules: Sequence[twin.Rule], releases: Sequence[Sequence[twin.Mechanism]]
) -> list[str]:
    """Release after release, the kept rules decide as all rules do.

    The witness of a broken rule must be broken too, which says more than the decision.
    """
    found = []
    past: list[twin.Mechanism] = []
    for release in releases:
        failing = {
            number
            for number, rule in enumerate(rules)
            if twin.broken(subject.policy, rule, past, release)
        }
        if bool(failing) != any(subject.pruned.kept[n] for n in failing):
            found.append(f"decided otherwise: {[rules[n].name for n in failing]} are broken")
        for number in failing:
            witness = int(subject.pruned.implied_by[number])
            if witness not in failing:
                found.append(f"{rules[number].name} is broken, {rules[witness].name} is not")
        if not failing:
            past.extend(release)
    return found


def problems(subject: Subject, random: Random) -> list[str]:
    """Whatever any check finds in one section."""
    found = [*wrong_size(subject), *wrong_thresholds(subject)]
    found += [*wrong_witnesses(subject), *needless(subject)]
    releases = random_releases(random, subject, 3)
    asked = [mechanism for release in releases for mechanism in release]
    found += wrong_matches(subject, [*asked, random.choice(subject.world.facts)])
    for rules in (subject.naive, subject.translated):
        found += wrong_decisions(subject, rules, releases)
    return found
