"""Naive twin of `problem_builder`: a round, block by block and set by set."""

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
    of: EnforcedSection,
    balances: Balances,
    chosen: Sequence[Candidate],
    points: Sequence[Point],
    unlocked: UnlockedShares,
) -> bool:
    """Return whether the selected candidates satisfy every rule in every block together."""
    if any(candidate.rejection_reasons for candidate in chosen):
        return False
    charges = [charge for candidate in chosen for charge in candidate.charges]
    rules = sorted({int(number) for charge in charges for number in charge.rule_numbers})
    return all(_fits_rule(of, balances, charges, rule, points, unlocked) for rule in rules)


def _fits_rule(
    of: EnforcedSection,
    balances: Balances,
    charges: Sequence[Charge],
    rule: int,
    points: Sequence[Point],
    unlocked: UnlockedShares,
) -> bool:
    segments, gate = balances.segments_for(rule), of.bounds_for(np.array([rule]))
    parts = [
        (of.granularities.blocks(charge.region, rule), row)
        for charge in charges
        for number, row in zip(charge.rule_numbers.tolist(), charge.rows.tolist(), strict=True)
        if number == rule
    ]
    frame = of.granularities.distinct[of.granularities.position_by_rule[rule]]
    by_cohort = unlocked.axis if unlocked.axis in frame.partitions else None
    for at in points:
        rows = [row for region, row in parts if contains(region, at)]
        share = Fraction(1) if by_cohort is None else unlocked.shares[at[by_cohort]]
        spent = segments.amounts_at(at).tolist() if rows else []
        after = [sum(column) for column in zip(spent, *rows, strict=True)]
        if rows and not _within(
            after, gate.maximum[0].tolist(), share, every=bool(gate.require_all[0])
        ):
            return False
    return True


def _within(amounts: list[int], most: list[int], share: Fraction, *, every: bool) -> bool:
    within = [
        limit >= INFINITE or (limit >= 0 and amount <= limit * share)
        for amount, limit in zip(amounts, most, strict=True)
    ]
    return (all(within[:-1]) if every else any(within[:-1])) and within[-1]


def admits(problem: AllocationProblem, chosen: Sequence[int]) -> bool:
    """Return whether a problem admits a set of candidates, row by row."""
    if not all(problem.fits_alone[number] for number in chosen):
        return False
    for row in problem.rows:
        inside = np.isin(row.candidates, chosen)
        if not inside.any():
            continue
        total = row.costs[inside].sum(axis=0)
        for left in row.remaining:
            within = (total <= left) | (left >= INFINITE)
            certified = within[:-1].all() if row.require_all else within[:-1].any()
            if not (certified and within[-1]):
                return False
    return True
