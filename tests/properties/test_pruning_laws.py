"""Pruning changes no decision: random policy sets against the naive twin (trust R9, theory T3)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.pruning_harness import (
    Truth,
    needless,
    problems,
    random_releases,
    subjects,
    whole,
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
            found = problems(subject, random)
            assert not found, (seed, subject.policy, found)
            sets += subject.section == "policies"
            sections += len(subject.rules) > 0
            pruned += len(subject.rules) - len(subject.kept)
    assert sets == EACH * POLICIES_IN_A_WORLD
    assert sections > sets and pruned > sets, "the generator has become too tame"


def test_anchored_thresholds_obey_the_same_laws() -> None:
    for seed in range(25):
        random = Random(seed)
        for subject in subjects(seed, 10, profile="anchored"):
            found = [*wrong_witnesses(subject.trusting), *needless(subject.trusting)]
            releases = random_releases(random, subject.trusting, 3)
            found += wrong_decisions(subject, subject.translated, releases)
            assert not found, (seed, subject.policy, found)


def test_implication_agrees_with_all_mechanisms() -> None:
    asked = 0
    for seed in range(30):
        world = random_world(Random(seed))
        schema = schema_of(world)
        truth = Truth(world.facts)
        comparison = ScopeComparer(schema)
        for a in world.predicates:
            for b in world.predicates:
                denied = truth.of(a)[1] | truth.of(b)[1]
                expected = truth.inside((a,), (b,), denied)
                assert comparison.is_inside(read(a, schema), read(b, schema)) == expected, (a, b)
                asked += 1
    assert asked > 3_000


def schema_of(world: World) -> ReleaseSchema:
    """The vocabulary of a world."""
    said = world.head["schema"]
    labels = {
        name: Label(
            name,
            tuple(about["values"]),
            about.get("many", False),
            about.get("default"),
            about.get("required", False),
        )
        for name, about in said["labels"].items()
    }
    return ReleaseSchema(frozenset(said["attributes"]), labels)


def read(text: str, schema: ReleaseSchema) -> Predicate:
    """The predicate that the code makes of a text."""
    if text == "always":
        return Always()
    predicate = parse_predicate(text, schema)
    assert isinstance(predicate, Expression), predicate
    return predicate


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_the_same_with_shrinking(random: Random) -> None:
    world = random_world(random)
    policy = random_policies(random, world)
    for subject in whole(policy, world, Truth(world.facts)):
        assert not problems(subject, random)
