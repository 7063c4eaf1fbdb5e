"""Pruning without one condition is detected, by Theorem A and by decisions separately.

The twin has no clock, so it does not detect an order without `collapse`. The tests of
`test_targeted_pruning.py` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from tests.properties.broken_orders import (
    partitions_ignored,
    relation_ignored,
    scopes_reversed,
    units_by_days,
)
from tests.properties.pruning_harness import (
    Arranger,
    Pruner,
    Subject,
    random_releases,
    subjects,
    wrong_decisions,
    wrong_witnesses,
)

from dpolicy.privacy.thresholds import BudgetBound, implies_bound
from dpolicy.rules import pruning
from dpolicy.rules.compiler import order_factors
from dpolicy.rules.pruning import FactorOrders, PruningResult, prune
from dpolicy.rules.rule import RuleProduct

MAX_WORLDS = 200
Variant = tuple[Arranger, Pruner]


def with_bound_comparison(variant: Callable[[BudgetBound, BudgetBound], bool]) -> Variant:
    """Return pruning that compares bounds by `variant`."""

    def pruner(rules: RuleProduct, arrangement: FactorOrders) -> PruningResult:
        with patch.object(pruning, "implies_bound", variant):
            return prune(rules, arrangement)

    return order_factors, pruner


def delta_ignored(tighter: BudgetBound, looser: BudgetBound) -> bool:
    """Do not compare the δ-side."""
    return implies_bound(replace(tighter, delta=looser.delta), looser)


def first_certificate_only(tighter: BudgetBound, looser: BudgetBound) -> bool:
    """P1: compare only the ε of two (ε, δ) budgets."""
    return implies_bound(
        replace(tighter, clauses=tighter.clauses[:1], delta=looser.delta),
        replace(looser, clauses=looser.clauses[:1]),
    )


def notions_ignored(tighter: BudgetBound, looser: BudgetBound) -> bool:
    """P2: compare numbers of different notions."""
    amounts = [[limit for _, limit in bound.clauses[0]] or [10**30] for bound in (tighter, looser)]
    return amounts[0] <= amounts[1]


def scopes_only(rules: RuleProduct, arrangement: FactorOrders) -> PruningResult:
    """Do not compare budgets: a wider scope is enough."""
    numbers = range(len(rules))
    above = {n: [m for m in numbers if is_wider(rules, arrangement, m, n)] for n in numbers}
    top = [min((len(above[m]), m) for m in above[n])[1] for n in numbers]
    return PruningResult(
        np.array(top, dtype=np.int32) == np.arange(len(rules)), np.array(top, np.int32)
    )


def is_wider(rules: RuleProduct, arrangement: FactorOrders, outer: int, inner: int) -> bool:
    """Return whether `inner` lies in the scope and unit of `outer`, factor by factor."""
    (a, x), (b, y) = divmod(inner, rules.width), divmod(outer, rules.width)
    inside = arrangement.scopes.leq(arrangement.scope_of_base[a], arrangement.scope_of_base[b])
    inside = inside and arrangement.units.leq(
        arrangement.unit_of_base[a], arrangement.unit_of_base[b]
    )
    for order in reversed(arrangement.settings):
        (x, i), (y, j) = divmod(x, len(order.classes)), divmod(y, len(order.classes))
        inside = inside and order.leq(i, j)
    return inside


def mutual_cover(rules: RuleProduct, arrangement: FactorOrders) -> PruningResult:
    """P10: let equal rules prune each other, so that both vanish."""
    real = prune(rules, arrangement)
    kept, witness = real.kept.copy(), real.implied_by.copy()
    for n in range(len(rules)):
        m = int(real.implied_by[n])
        same = rules.bound_numbers[n] == rules.bound_numbers[m]
        if m != n and same and is_wider(rules, arrangement, n, m):
            kept[m] = False
            witness[m] = n
    return PruningResult(kept, witness)


CANARIES: dict[str, Variant] = {
    "delta-ignored": with_bound_comparison(delta_ignored),
    "only-epsilon": with_bound_comparison(first_certificate_only),
    "notions-ignored": with_bound_comparison(notions_ignored),
    "bounds-ignored": (order_factors, scopes_only),
    "mutual-cover": (order_factors, mutual_cover),
    "units-by-days": (units_by_days, prune),
    "relation-ignored": (relation_ignored, prune),
    "partitions-ignored": (partitions_ignored, prune),
    "order-backwards": (scopes_reversed, prune),
}


def first_detection(
    variant: Variant, check: Callable[[Subject, Random], Iterable[str]]
) -> int | None:
    """Return the seed of the first world in which a check detects the variant; None if none."""
    arranger, pruner = variant
    for seed in range(MAX_WORLDS):
        random = Random(seed)
        for subject in subjects(seed, 20, arranger=arranger, pruner=pruner):
            if any(check(subject, random)):
                return seed
    return None


def different_decisions(subject: Subject, random: Random) -> list[str]:
    """Return only the different decisions, not the differences between exceeded rules."""
    if len(subject.kept_numbers) == len(subject.rules):
        return []
    releases = random_releases(random, subject, 6)
    violations = wrong_decisions(subject, subject.naive, releases)
    return [text for text in violations if text.startswith("different decision")]


@pytest.mark.parametrize("name", CANARIES)
def test_theorem_a_detects(name: str) -> None:
    assert first_detection(CANARIES[name], lambda subject, _: wrong_witnesses(subject)) is not None


@pytest.mark.parametrize("name", CANARIES)
def test_decisions_detect(name: str) -> None:
    assert first_detection(CANARIES[name], different_decisions) is not None


def test_the_real_pruning_has_no_violation() -> None:
    for seed in range(3):
        random = Random(seed)
        for subject in subjects(seed, 20):
            assert not different_decisions(subject, random) and not wrong_witnesses(subject)
