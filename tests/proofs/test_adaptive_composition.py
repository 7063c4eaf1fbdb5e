"""Statement 3 of theory/proofs by exact enumeration of adaptive transcripts.

Three steps have two outcomes each. The masses of a step on D and D', and the rules that count it,
depend on the outcomes before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

STEPS = 3
Prefix = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """Probability of outcome 1 on D and on D', and the rules that count the mechanism."""

    on_d: float
    on_other: float
    rules: frozenset[int]


def random_tree(random: Random, choices: list[frozenset[int]]) -> dict[Prefix, Step]:
    """Return a step for every sequence of earlier outcomes; half of them have rare outcomes."""
    tree = {}
    for length in range(STEPS):
        for prefix in product((0, 1), repeat=length):
            scale = random.choice((1.0, 0.01))
            on_d, on_other = (random.uniform(0.001, 0.999) * scale for _ in range(2))
            tree[prefix] = Step(on_d, on_other, random.choice(choices))
    return tree


def delta(tree: dict[Prefix, Step], moved: frozenset[int], epsilon: float) -> float:
    """Return δ at ε between D and the hybrid in which steps of the moved rules answer from D'."""
    total = 0.0
    for outcome in product((0, 1), repeat=STEPS):
        p = q = 1.0
        for length, answer in enumerate(outcome):
            step = tree[outcome[:length]]
            other = step.on_other if step.rules & moved else step.on_d
            p *= step.on_d if answer else 1 - step.on_d
            q *= other if answer else 1 - other
        total += max(0.0, p - math.exp(epsilon) * q)
    return total


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9), st.floats(0, 3), st.floats(0, 3))
def test_whole_rules_add_epsilon_and_delta(seed: int, first: float, second: float) -> None:
    tree = random_tree(Random(seed), [frozenset({0}), frozenset({1})])
    parts = delta(tree, frozenset({0}), first) + delta(tree, frozenset({1}), second)
    assert delta(tree, frozenset({0, 1}), first + second) <= parts + 1e-12


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9), st.lists(st.floats(0, 3), min_size=3, max_size=3))
def test_half_weights_add_half_of_epsilon_and_all_of_delta(
    seed: int, epsilons: list[float]
) -> None:
    """Every step is counted by two of three rules, each of weight ½."""
    pairs = [frozenset({0, 1}), frozenset({1, 2}), frozenset({0, 2})]
    tree = random_tree(Random(seed), pairs)
    parts = sum(delta(tree, frozenset({rule}), own) for rule, own in enumerate(epsilons))
    assert delta(tree, frozenset({0, 1, 2}), sum(epsilons) / 2) <= parts + 1e-12


def test_the_enumeration_detects_a_smaller_delta() -> None:
    """A canary: the larger of the two δ, instead of their sum, is exceeded."""
    exceeded = 0
    for seed in range(200):
        tree = random_tree(Random(seed), [frozenset({0}), frozenset({1})])
        parts = delta(tree, frozenset({0}), 0.5), delta(tree, frozenset({1}), 0.5)
        exceeded += delta(tree, frozenset({0, 1}), 1.0) > max(parts) + 1e-9
    assert exceeded
