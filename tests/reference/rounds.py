"""Naive twin of `problem_builder`: check a round block by block for each set of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpolicy.allocation.problem.candidates import Candidate
from dpolicy.allocation.problem.knapsack import AllocationProblem
from dpolicy.allocation.unlocking import UnlockedShares
from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.regions import Point, contains


def fits(
    section: EnforcedSection,
    balances: Balances,
    selected: Sequence[Candidate],
    points: Sequence[Point],
    unlocked: UnlockedShares,
) -> bool:
    """Return whether the selected candidates satisfy every rule in every block together."""
    if any(candidate.rejection_reasons for candidate in selected):
        return False
    charges = [charge for candidate in selected for charge in candidate.charges]
    rules = sorted({int(number) for charge in charges for number in charge.rule_numbers})
    return all(_fits_rule(section, balances, charges, rule, points, unlocked) for rule in rules)


def _fits_rule(
    section: EnforcedSection,
    balances: Balances,
    charges: Sequence[Charge],
    rule: int,
    points: Sequence[Point],
    unlocked: UnlockedShares,
) -> bool:
    segments, bounds = balances.segments_for(rule), section.bounds_for(np.array([rule]))
    parts = [
        (section.granularities.blocks(charge.region, rule), row)
        for charge in charges
        for number, row in zip(charge.rule_numbers.tolist(), charge.rows.tolist(), strict=True)
        if number == rule
    ]
    frame = section.granularities.for_rule(rule)
    by_cohort = unlocked.axis if unlocked.axis in frame.partitions else None
    for point in points:
        rows = [row for region, row in parts if contains(region, point)]
        share = Fraction(1) if by_cohort is None else unlocked.shares[point[by_cohort]]
        spent = segments.amounts_at(point).tolist() if rows else []
        after = [sum(column) for column in zip(spent, *rows, strict=True)]
        if rows and not _is_within(
            after, bounds.maximum[0].tolist(), share, require_all=bool(bounds.require_all[0])
        ):
            return False
    return True


def _is_within(
    amounts: list[int], limits: list[int], share: Fraction, *, require_all: bool
) -> bool:
    within = [
        limit >= INFINITE or (limit >= 0 and amount <= limit * share)
        for amount, limit in zip(amounts, limits, strict=True)
    ]
    return (all(within[:-1]) if require_all else any(within[:-1])) and within[-1]


def admits(problem: AllocationProblem, selected: Sequence[int]) -> bool:
    """Return whether a problem admits a set of candidates, row by row."""
    if not all(problem.fits_alone[number] for number in selected):
        return False
    for row in problem.rows:
        inside = np.isin(row.candidates, selected)
        if not inside.any():
            continue
        total = row.costs[inside].sum(axis=0)
        for limits in row.remaining:
            within = (total <= limits) | (limits >= INFINITE)
            certified = within[:-1].all() if row.require_all else within[:-1].any()
            if not (certified and within[-1]):
                return False
    return True
