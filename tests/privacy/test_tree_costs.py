"""Trees with several participations against all choices of steps (tighter-costs.md)."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations

import pytest
from tests.reference.tighter_costs import tree_squares

from dpolicy.privacy.certificates import MU_SQUARED, QUANTA_PER_UNIT, RHO, renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.mechanisms import tree_participations
from dpolicy.privacy.mechanisms.cost_rules import CostRules
from dpolicy.privacy.mechanisms.gaussian import TreeAggregation
from dpolicy.privacy.mechanisms.tree_participations import squared_sensitivity
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

AR = NeighbouringRelation.ADD_REMOVE


@pytest.mark.parametrize("steps", range(1, 13))
def test_the_program_is_the_largest_of_all_choices(steps: int) -> None:
    for p in range(1, steps + 2):
        choices = combinations(range(steps), min(p, steps))
        worst = max(tree_squares(steps, choice) for choice in choices)
        assert squared_sensitivity(steps, p) == worst
        assert squared_sensitivity(steps, p) <= p * p * steps.bit_length()


def test_participations_do_not_compose_as_if_they_were_of_different_units() -> None:
    """Canary: p times the nodes of one step is below the sum of neighbouring steps."""
    assert 4 * squared_sensitivity(1024, 1) < tree_squares(1024, range(4))


@pytest.mark.parametrize("seed", range(5))
def test_the_closed_form_is_above_the_program(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    cases = [(rng.randint(1, 5000), rng.randint(1, 64)) for _ in range(20)]
    exact = [squared_sensitivity(*case) for case in cases]
    monkeypatch.setattr(tree_participations, "MAX_PARTICIPATIONS", 0)
    closed = [squared_sensitivity(*case) for case in cases]
    assert all(a <= b for a, b in zip(exact, closed, strict=True))
    assert squared_sensitivity(2048, 32) == 8160


@pytest.mark.parametrize(
    ("steps", "participations", "before", "after"),
    [(1024, 4, 88, 78), (1024, 10, 550, 417), (2048, 32, 6144, 4080), (1024, 1, 5.5, 5.5)],
)
def test_costs_fall_as_the_page_states(
    steps: int, participations: int, before: float, after: float
) -> None:
    tree = TreeAggregation(Fraction(1), steps, participations)
    first, second = (cost(tree, 1, AR, (RHO, MU_SQUARED), rules).amounts for rules in CostRules)
    assert first == (before * QUANTA_PER_UNIT, 2 * before * QUANTA_PER_UNIT)
    assert second == (after * QUANTA_PER_UNIT, 2 * after * QUANTA_PER_UNIT)


def test_groups_have_k_times_the_sensitivity() -> None:
    tree = TreeAggregation(Fraction(3), 100, 5)
    one, three = (cost(tree, k, AR, (RHO, renyi(4)), CostRules.SECOND).amounts for k in (1, 3))
    assert all(abs(9 * a - b) <= 9 for a, b in zip(one, three, strict=True))
