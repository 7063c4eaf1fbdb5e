"""Unlocking schedule: the share of its budget that a cohort may have spent by now (theory 6.4).

Users join in cohorts; a cohort is active for a number of rounds and never selected again. Its
budget is unlocked step by step. The unlocked share depends on the age of the cohort only, never on
requests, and is at most 1 at every age; this keeps the guarantee. All thresholds are scaled by one
factor and rounded down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.regions import Interval


@dataclass(frozen=True, slots=True)
class UnlockingSchedule:
    """Schedule that unlocks the whole budget in `steps`; `slack` unlocks the first half faster."""

    steps: int
    slack: Fraction = Fraction(0)

    def share(self, age: int) -> Fraction:
        """Return the unlocked share of the budget of a cohort of this age.

        The age is 1 in the first round of a cohort. The share is 0 before and 1 from age `steps`.
        """
        if age >= self.steps:
            return Fraction(1)
        if age <= 0:
            return Fraction(0)
        ahead = age if 2 * age < self.steps else self.steps - age
        return (age + self.slack * ahead) / self.steps


@dataclass(frozen=True, slots=True)
class CohortRotation:
    """Rotation in which cohort c of a ranged partition is active in rounds c ≤ t < c + `active`."""

    partition: str
    active: int

    def active_cohorts(self, number: int) -> Interval:
        """Return the active cohorts of a round as a half-open interval."""
        return number - self.active + 1, number + 1


@dataclass(frozen=True, slots=True)
class UnlockedShares:
    """Unlocked share of the budget by cohort; 0 for a cohort without an entry.

    `axis` is the axis of the cohorts. Without an axis the whole budget is unlocked.
    """

    axis: int | None = None
    shares: Mapping[int, Fraction] = field(default_factory=dict)

    def smallest_share(self, cohorts: Interval) -> Fraction:
        """Return the smallest unlocked share of a half-open interval of cohorts."""
        return min(self.shares.get(cohort, Fraction(0)) for cohort in range(*cohorts))


#: No schedule: all budgets are fully unlocked.
ALL_UNLOCKED = UnlockedShares()


def unlocked_shares_in_round(
    number: int, axis: int, rotation: CohortRotation, unlocking: UnlockingSchedule
) -> UnlockedShares:
    """Return the unlocked share of every active cohort in a round."""
    cohorts = range(*rotation.active_cohorts(number))
    return UnlockedShares(axis, {c: unlocking.share(number - c + 1) for c in cohorts})


def scale_threshold(threshold: int, share: Fraction) -> int:
    """Scale a threshold, rounding down; −1 (unusable) and INFINITE (no limit) do not change."""
    if not 0 <= threshold < INFINITE:
        return threshold
    return threshold * share.numerator // share.denominator
