"""Pruning changes no decision: random policy sets against the naive twin (theory T3)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.pruning_harness import (
    Truth,
    compile_whole,
    problems,
    random_releases,
    redundant_rules,
    subjects,
    with_profile,
    wrong_decisions,
    wrong_witnesses,
)
from tests.properties.random_policies import World, random_policies, random_world

from dpolicy.predicates.expression import Always, Expression, Predicate, parse_predicate
from dpolicy.releases.release_schema import Label, ReleaseSchema
from dpolicy.rules.scope_order import ScopeComparer

WORLDS, POLICIES_IN_A_WORLD, PARTS = 1_000, 20, 20
EACH = WORLDS // PARTS


@pytest.mark.parametrize("part", range(PARTS))
def test_pruned_rules_decide_as_all_rules_do(part: int) -> None:
    sets = sections = pruned = 0
    for seed in range(part * EACH, (part + 1) * EACH):
        random = Random(seed)
        for subject in subjects(seed, POLICIES_IN_A_WORLD):
            violations = problems(subject, random)
            assert not violations, (seed, subject.policy, violations)
            sets += subject.section == "policies"
            sections += len(subject.rules) > 0
            pruned += len(subject.rules) - len(subject.kept_numbers)
    assert sets == EACH * POLICIES_IN_A_WORLD
    assert sections > sets and pruned > sets, "the random policy sets have too few rules to prune"


@pytest.mark.parametrize(("profile", "seeds"), (("anchored", 25), ("gaussian", 8)))
def test_other_thresholds_obey_the_same_laws(profile: str, seeds: int) -> None:
    for seed in range(seeds):
        random = Random(seed)
        for subject in subjects(seed, 10, profile=profile):
            violations = [
                *wrong_witnesses(subject.with_code_bounds),
                *redundant_rules(subject.with_code_bounds),
            ]
            releases = random_releases(random, subject.with_code_bounds, 3)
            violations += wrong_decisions(subject, subject.naive_with_code_bounds, releases)
            assert not violations, (seed, subject.policy, violations)


def test_implication_agrees_with_all_mechanisms() -> None:
    count = 0
    for seed in range(30):
        world = random_world(Random(seed))
        schema = release_schema(world)
        truth = Truth(world.facts)
        comparison = ScopeComparer(schema)
        for a in world.predicates:
            for b in world.predicates:
                denied = truth.masks(a)[1] | truth.masks(b)[1]
                expected = truth.is_inside((a,), (b,), denied)
                assert comparison.is_inside(parse(a, schema), parse(b, schema)) == expected, (a, b)
                count += 1
    assert count > 3_000


def release_schema(world: World) -> ReleaseSchema:
    """Return the release schema of a world."""
    definitions = world.head["schema"]
    labels = {
        name: Label(
            name,
            tuple(label["values"]),
            label.get("many", False),
            label.get("default"),
            label.get("required", False),
        )
        for name, label in definitions["labels"].items()
    }
    return ReleaseSchema(frozenset(definitions["attributes"]), labels)


def parse(text: str, schema: ReleaseSchema) -> Predicate:
    """Return the predicate of the code for a text."""
    if text == "always":
        return Always()
    predicate = parse_predicate(text, schema)
    assert isinstance(predicate, Expression), predicate
    return predicate


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_random_policy_sets_with_shrinking(random: Random) -> None:
    world = with_profile(random_world(random), "classic")
    policy = random_policies(random, world)
    for subject in compile_whole(policy, world, Truth(world.facts)):
        assert not problems(subject, random)
