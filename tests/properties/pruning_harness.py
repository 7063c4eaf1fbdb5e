"""Laws between a compiled policy set and its expansion by the naive twin.

Every check returns a list of violations as text, so that a canary can test which check detects it.
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
from tests.properties.theorem_a import covers_blocks, covers_bound, covers_unit
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

#: The two stages of compilation that a canary can replace, with their real signatures.
Arranger = Callable[[RuleProduct, CheckedPolicySet, ScopeComparer], FactorOrders]
Pruner = Callable[[RuleProduct, FactorOrders], PruningResult]


@dataclass(frozen=True)
class Truth:
    """Results of every predicate on every mechanism of a world, as bit masks."""

    facts: tuple[twin.Mechanism, ...]
    _masks: dict[str, tuple[int, int]] = field(default_factory=dict)

    def masks(self, text: str) -> tuple[int, int]:
        """Return the mechanisms that match, and the mechanisms on which the predicate fails."""
        if text not in self._masks:
            true = failed = 0
            for position, fact in enumerate(self.facts):
                try:
                    true |= twin.predicate(text)(fact) << position
                except KeyError:
                    failed |= 1 << position
            self._masks[text] = true, failed
        return self._masks[text]

    def is_inside(self, smaller: Sequence[str], larger: Sequence[str], denied: int) -> bool:
        """Return whether all mechanisms that match the first match the second, except `denied`."""
        inner, outer = ~denied, ~denied
        for text in smaller:
            inner &= self.masks(text)[0]
        for text in larger:
            outer &= self.masks(text)[0]
        return inner & ~outer & ((1 << len(self.facts)) - 1) == 0


@dataclass(frozen=True)
class Subject:
    """One section of a policy set, compiled and by the twin, with the same rule numbers."""

    policy: twin.PolicyDict
    world: World
    truth: Truth
    section: str
    rules: RuleProduct
    pruned: PruningResult
    index: RuleIndex

    @cached_property
    def code_rules(self) -> list[Rule]:
        """Rules of the code."""
        return list(self.rules)

    @cached_property
    def twin_rules(self) -> list[twin.Rule]:
        """Rules of the twin, in the order of the twin."""
        return twin.expand(self.policy, self.section)

    @cached_property
    def naive(self) -> list[twin.Rule]:
        """Rules of the twin, in the order of the code."""
        by_name = {(rule.name, rule.unit): rule for rule in self.twin_rules}
        return [by_name[rule.name, rule.unit] for rule in self.code_rules]

    @cached_property
    def naive_with_code_bounds(self) -> list[twin.Rule]:
        """Rules of the twin with the thresholds of the code."""
        bounds = {id(rule.bound): bound_in_fractions(rule.bound) for rule in self.code_rules}
        return [
            twin.Rule(r.name, r.unit, n.predicates, n.budget, r.each_release, *bounds[id(r.bound)])
            for r, n in zip(self.code_rules, self.naive, strict=True)
        ]

    @cached_property
    def with_code_bounds(self) -> Subject:
        """The subject with the thresholds of the code, for profiles that the twin does not have."""
        other = replace(self)
        other.__dict__["naive"] = self.naive_with_code_bounds
        return other

    @cached_property
    def kept_numbers(self) -> list[int]:
        """Numbers of the kept rules."""
        return [int(number) for number in np.flatnonzero(self.pruned.kept)]

    @cached_property
    def failing_mask(self) -> int:
        """Mechanisms on which some predicate of the section fails."""
        failed = 0
        for text in {text for rule in self.naive for text in rule.predicates}:
            failed |= self.truth.masks(text)[1]
        return failed


def bound_in_fractions(
    bound: BudgetBound,
) -> tuple[tuple[dict[twin.Key, Fraction], ...], Fraction | None]:
    """Return a bound of the code in the types of the twin."""
    clauses = tuple(
        {
            c.order if c.notion is Notion.RENYI else str(c): Fraction(limit, QUANTA_PER_UNIT)
            for c, limit in clause
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
    """Yield the sections of several random policy sets in one random world.

    `compile_policy` compiles every tenth set. The others pass the same stages one by one and share
    the comparisons of predicates, which take most of the time.
    """
    random = Random(seed)
    world = with_profile(random_world(random), profile)
    truth = Truth(world.facts)
    comparison: ScopeComparer | None = None
    for number in range(policies_in_a_world):
        policy = random_policies(random, world)
        if number % 10 == 0 and pruner is prune and arranger is order_factors:
            yield from compile_whole(policy, world, truth)
        else:
            stages = arranger, pruner
            comparison = yield from compile_by_stages(policy, world, truth, comparison, stages)


def with_profile(world: World, profile: str) -> World:
    """Return a world whose policy sets state a profile; the twin has `classic` only."""
    accounting = {**world.head["accounting"], "profile": profile}
    return replace(world, head={**world.head, "accounting": accounting})


def compile_whole(policy: twin.PolicyDict, world: World, truth: Truth) -> Iterator[Subject]:
    """Yield the sections of a policy set that `compile_policy` compiles."""
    compiled = compile_policy([Source("policy.json", json.dumps(policy))])
    for name, s in zip(("policies", "each-release"), compiled.sections, strict=True):
        yield Subject(policy, world, truth, name, s.rules, s.pruning, s.index)


def compile_by_stages(
    policy: twin.PolicyDict,
    world: World,
    truth: Truth,
    comparison: ScopeComparer | None,
    stages: tuple[Arranger, Pruner],
) -> Generator[Subject, None, ScopeComparer]:
    """Yield the sections of a policy set, stage by stage; return the comparer for the next set."""
    diagnostics = DiagnosticCollector()
    parsed = parse_policies([Source("policy.json", json.dumps(policy))], diagnostics)
    assert parsed is not None, diagnostics.sorted_diagnostics
    checked = check_policies(parsed, diagnostics)
    comparison = comparison or ScopeComparer(checked.vocabulary.schema)
    arranger, pruner = stages
    for name, section in (("policies", parsed.policies), ("each-release", parsed.each_release)):
        rules = expand(checked, section, diagnostics)
        assert not diagnostics.errors, diagnostics.errors
        pruned = pruner(rules, arranger(rules, checked, comparison))
        yield Subject(policy, world, truth, name, rules, pruned, build_index(rules, pruned))
    return comparison


def wrong_size(subject: Subject) -> list[str]:
    """Check that |R| is that of the formula, and that both sides have the same rules."""
    expected = rule_count(subject.policy, subject.section)
    spelled = subject.twin_rules
    names = sorted((rule.name, rule.unit) for rule in subject.code_rules)
    if not expected == len(subject.rules) == len(spelled):
        return [
            f"{len(subject.rules)} rules, {len(spelled)} of the twin, {expected} by the formula"
        ]
    if names != sorted((rule.name, rule.unit) for rule in spelled):
        return [f"names differ: {names}"]
    return []


def wrong_thresholds(subject: Subject) -> list[str]:
    """Check that thresholds equal those of the twin, or are one quantum less after a logarithm."""
    violations = []
    for naive, real in zip(subject.naive, subject.naive_with_code_bounds, strict=True):
        pairs = zip(naive.clauses, real.clauses, strict=True)
        equal = all(
            a.keys() == b.keys() and all(0 <= a[key] - b[key] <= twin.QUANTUM for key in a)
            for a, b in pairs
        )
        if (naive.delta is None) != (real.delta is None) or not equal:
            violations.append(f"{naive.name}: {naive.clauses} became {real.clauses}")
        elif (
            naive.delta and real.delta and not 0 <= naive.delta - real.delta <= naive.delta / 2**40
        ):
            violations.append(f"{naive.name}: δ-side {naive.delta} became {real.delta}")
    return violations


def wrong_witnesses(subject: Subject) -> list[str]:
    """Check that every pruned rule has a kept witness that implies it by Theorem A."""
    violations = []
    for number, rule in enumerate(subject.naive):
        witness = int(subject.pruned.implied_by[number])
        if subject.pruned.kept[number]:
            if witness != number:
                violations.append(f"{rule.name} is kept and has a witness")
        elif not subject.pruned.kept[witness]:
            violations.append(f"the witness of {rule.name} is pruned")
        elif not is_implied(subject, rule, subject.naive[witness]):
            violations.append(f"{rule.name} ({rule.unit}) by {subject.naive[witness].name}")
    return violations


def is_implied(subject: Subject, inner: twin.Rule, outer: twin.Rule) -> bool:
    """Return whether Theorem A holds for a pair, with scopes compared as wholes."""
    return (
        covers_bound(outer, inner)
        and covers_unit(subject.policy, inner.unit, outer.unit)
        and covers_blocks(subject.policy, inner.predicates, outer.predicates)
        and subject.truth.is_inside(inner.predicates, outer.predicates, subject.failing_mask)
    )


def is_implied_by_factors(subject: Subject, inner: twin.Rule, outer: twin.Rule) -> bool:
    """Return whether Theorem A holds for a pair, with scopes compared factor by factor."""
    return (
        covers_unit(subject.policy, inner.unit, outer.unit)
        and covers_bound(outer, inner)
        and all(
            covers_blocks(subject.policy, (a,), (b,))
            and subject.truth.is_inside((a,), (b,), subject.failing_mask)
            for a, b in zip(inner.predicates, outer.predicates, strict=True)
        )
    )


def redundant_rules(subject: Subject) -> list[str]:
    """Check that no kept rule implies another, so that exactly one of equal rules is kept."""
    return [
        f"{subject.naive[a].name} is implied by {subject.naive[b].name}, and both are kept"
        for a in subject.kept_numbers
        for b in subject.kept_numbers
        if a != b and is_implied_by_factors(subject, subject.naive[a], subject.naive[b])
    ]


def wrong_matches(subject: Subject, mechanisms: Sequence[twin.Mechanism]) -> list[str]:
    """Check that the index, a scan by the code, and the twin return the same kept rules.

    A section without rules is skipped: its settings may still fail, and then the index denies.
    """
    violations: list[str] = []
    if not subject.code_rules:
        return violations
    for mechanism in mechanisms:
        facts = predicate_input(mechanism)
        indexed = _look_up(subject.index, facts)
        scanned = _scan(subject.code_rules, partial(_matches_in_code, facts))
        naive = _scan(subject.naive, partial(_matches_in_twin, mechanism))
        kept = None if naive is None else [n for n in naive if subject.pruned.kept[n]]
        if scanned != naive or indexed != kept:
            violations.append(f"{facts}: index {indexed}, scan {scanned}, twin {naive}")
    return violations


def _matches_in_code(facts: PredicateInput, part: Predicate) -> bool:
    return matches(part, facts)


def _matches_in_twin(mechanism: twin.Mechanism, text: str) -> bool:
    return twin.predicate(text)(mechanism)


def _look_up(index: RuleIndex, facts: PredicateInput) -> list[int] | None:
    try:
        return index.matching_rules(facts)
    except PredicateFailed:
        return None


def _scan(
    rules: Sequence[Rule] | Sequence[twin.Rule], is_match: Callable[[Any], bool]
) -> list[int] | None:
    """Return the numbers of the rules that match; None if any predicate of any rule fails."""
    try:
        results = [[is_match(part) for part in rule.predicates] for rule in rules]
    except (PredicateFailed, KeyError):
        return None
    return [number for number, result in enumerate(results) if all(result)]


def predicate_input(mechanism: twin.Mechanism) -> PredicateInput:
    """Return a mechanism of the twin as predicate input of the code."""
    used = tuple(sorted(mechanism.attributes))
    return PredicateInput(used, mechanism.labels, mechanism.kind, mechanism.by)


def random_releases(
    random: Random, subject: Subject, count: int
) -> list[tuple[twin.Mechanism, ...]]:
    """Return releases of one or two mechanisms on which no predicate fails."""
    keys = certificates(subject.policy, subject.naive)
    valid = [f for n, f in enumerate(subject.world.facts) if not subject.failing_mask >> n & 1]
    if not valid or not subject.naive:
        return []
    # Half of the time all costs aim at one rule, so that they fill it.
    rules = subject.naive if random.random() < 0.5 else [random.choice(subject.naive)]
    return [
        tuple(
            random_mechanism(random, subject.world, rules, keys, random.choice(valid))
            for _ in range(random.choice((1, 1, 2)))
        )
        for _ in range(count)
    ]


def wrong_decisions(
    subject: Subject, rules: Sequence[twin.Rule], releases: Sequence[Sequence[twin.Mechanism]]
) -> list[str]:
    """Check, release after release, that the kept rules decide as all rules do.

    The witness of an exceeded rule must be exceeded too, which is stronger than an equal decision.
    """
    violations = []
    past: list[twin.Mechanism] = []
    for release in releases:
        failing = {
            number
            for number, rule in enumerate(rules)
            if twin.is_exceeded(subject.policy, rule, past, release)
        }
        if bool(failing) != any(subject.pruned.kept[n] for n in failing):
            names = [rules[n].name for n in failing]
            violations.append(f"different decision: {names} are exceeded")
        for number in failing:
            witness = int(subject.pruned.implied_by[number])
            if witness not in failing:
                violations.append(f"{rules[number].name} is exceeded, {rules[witness].name} is not")
        if not failing:
            past.extend(release)
    return violations


def problems(subject: Subject, random: Random) -> list[str]:
    """Return the violations of all checks in one section."""
    violations = [*wrong_size(subject), *wrong_thresholds(subject)]
    violations += [*wrong_witnesses(subject), *redundant_rules(subject)]
    releases = random_releases(random, subject, 3)
    mechanisms = [mechanism for release in releases for mechanism in release]
    violations += wrong_matches(subject, [*mechanisms, random.choice(subject.world.facts)])
    for rules in (subject.naive, subject.naive_with_code_bounds):
        violations += wrong_decisions(subject, rules, releases)
    return violations
