"""Naive twin of carried prices: one block and one candidate at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpolicy.allocation.carried_prices import MIN_PRICE_WEIGHT, MIN_REMAINING_SHARE, PRICE_DECAY
from dpolicy.allocation.problem.candidates import Candidate
from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.regions import Point, contains

#: A rule, a block, the price of the remaining budget there, and its share of the budget.
Paid = tuple[int, Point, float, float]


def later(
    of: EnforcedSection, rounds: Sequence[Sequence[Paid]], candidate: Candidate, cohorts: int | None
) -> float:
    """Return the price of a candidate's budget shares in earlier rounds, the latest last."""
    kept = [
        (age, paid)
        for age, paid in enumerate(reversed(rounds))
        if PRICE_DECAY**age >= MIN_PRICE_WEIGHT
    ]
    oldest = max((age for age, paid in kept if paid), default=0)
    whole = sum(PRICE_DECAY**age for age in range(oldest + 1))
    total = 0.0
    for age, paid in kept:
        for rule, block, price, rest in paid:
            worth = price / max(rest, MIN_REMAINING_SHARE) * PRICE_DECAY**age / whole
            total += worth * _share(of, candidate, rule, block, cohorts)
    return total


def _share(
    of: EnforcedSection, candidate: Candidate, rule: int, block: Point, cohorts: int | None
) -> float:
    """Return the largest share of a rule's budget that a candidate uses, over cohorts."""
    limits = of.bounds_for(np.array([rule])).maximum[0, :-1].tolist()
    places = [block]
    if cohorts is not None:
        before, beyond = block[:cohorts], block[cohorts + 1 :]
        places = [(*before, cohort, *beyond) for cohort in range(*of.full_extent[cohorts])]
    most = 0.0
    for place in places:
        rows = [
            row[:-1]
            for charge in (() if candidate.rejection_reasons else candidate.charges)
            for number, row in zip(charge.rule_numbers.tolist(), charge.rows.tolist(), strict=True)
            if number == rule and contains(of.granularities.blocks(charge.region, rule), place)
        ]
        costs = [sum(column) for column in zip(*rows, strict=True)]
        shares = [c / m for c, m in zip(costs, limits, strict=bool(costs)) if 0 < m < INFINITE]
        most = max(most, min([1.0, *shares]) if rows else 0.0)
    return most
