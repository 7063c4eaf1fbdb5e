"""Pruning changes no decision: random policy sets against the naive twin (trust R9, theory T3)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.pruning_harness import Truth, problems, subjects, whole
from tests.properties.random_policies import random_policies, random_world

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


def test_a_setting_about_a_partition_is_not_split_by_it() -> None:
    for seed in range(20):
        random = Random(seed)
        for subject in subjects(seed, POLICIES_IN_A_WORLD, partitions_in_settings=True):
            found = problems(subject, random)
            assert not found, (seed, subject.policy, found)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_the_same_with_shrinking(random: Random) -> None:
    world = random_world(random)
    policy = random_policies(random, world, partitions_in_settings=False)
    for subject in whole(policy, world, Truth(world.facts)):
        assert not problems(subject, random)
