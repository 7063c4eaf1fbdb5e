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


def opportunity_cost(
    section: EnforcedSection,
    rounds: Sequence[Sequence[Paid]],
    candidate: Candidate,
    cohorts: int | None,
) -> float:
    """Return the decayed average price of the candidate's shares; the oldest round is first."""
    counted = [
        (age, paid)
        for age, paid in enumerate(reversed(rounds))
        if PRICE_DECAY**age >= MIN_PRICE_WEIGHT
    ]
    oldest = max((age for age, paid in counted if paid), default=0)
    total_weight = sum(PRICE_DECAY**age for age in range(oldest + 1))
    total = 0.0
    for age, paid in counted:
        for rule, block, price, remaining_share in paid:
            weighted_price = (
                price / max(remaining_share, MIN_REMAINING_SHARE) * PRICE_DECAY**age / total_weight
            )
            total += weighted_price * _largest_share(section, candidate, rule, block, cohorts)
    return total


def _largest_share(
    section: EnforcedSection, candidate: Candidate, rule: int, block: Point, cohorts: int | None
) -> float:
    """Return the largest share of a rule's budget that a candidate uses, over cohorts."""
    limits = section.bounds_for(np.array([rule])).maximum[0, :-1].tolist()
    blocks = [block]
    if cohorts is not None:
        axes_before, axes_after = block[:cohorts], block[cohorts + 1 :]
        blocks = [
            (*axes_before, cohort, *axes_after) for cohort in range(*section.full_extent[cohorts])
        ]
    largest = 0.0
    for point in blocks:
        rows = [
            row[:-1]
            for charge in (() if candidate.rejection_reasons else candidate.charges)
            for number, row in zip(charge.rule_numbers.tolist(), charge.rows.tolist(), strict=True)
            if number == rule and contains(section.granularities.blocks(charge.region, rule), point)
        ]
        costs = [sum(column) for column in zip(*rows, strict=True)]
        shares = [c / m for c, m in zip(costs, limits, strict=bool(costs)) if 0 < m < INFINITE]
        largest = max(largest, min([1.0, *shares]) if rows else 0.0)
    return largest
