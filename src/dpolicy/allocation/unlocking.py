"""A schedule → how much of its budget each cohort may have spent by now (theory 6.4).

Users join in cohorts; a cohort is active for a number of rounds and never selected again. Its
budget is unlocked step by step, by age alone and never by what anybody asks: that it is at most the
whole at every age keeps the guarantee. All thresholds are scaled by one factor and rounded down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.regions import Interval


@dataclass(frozen=True, slots=True)
class UnlockingSchedule:
    """All of the budget over so many steps; `slack` unlocks the first half faster."""

    steps: int
    slack: Fraction = Fraction(0)

    def share(self, age: int) -> Fraction:
        """The part of the budget that is unlocked in the round in which a cohort is this old.

        It is 1 from the last step on, and nothing before the first round of a cohort (age 1).
        """
        if age >= self.steps:
            return Fraction(1)
        if age <= 0:
            return Fraction(0)
        ahead = age if 2 * age < self.steps else self.steps - age
        return (age + self.slack * ahead) / self.steps


@dataclass(frozen=True, slots=True)
class CohortRotation:
    """Cohort c, a value of a ranged partition, is active in the rounds c ≤ t < c + `active`."""

    partition: str
    active: int

    def active_cohorts(self, number: int) -> Interval:
        """The cohorts that are active in a round, the last one without."""
        return number - self.active + 1, number + 1


@dataclass(frozen=True, slots=True)
class UnlockedShares:
    """What is unlocked now, by the place on one axis; where nothing is said, nothing.

    Without an axis everything is unlocked.
    """

    axis: int | None = None
    shares: Mapping[int, Fraction] = field(default_factory=dict)

    def smallest_share(self, cohorts: Interval) -> Fraction:
        """What is unlocked in all of these cohorts."""
        return min(self.shares.get(cohort, Fraction(0)) for cohort in range(*cohorts))


#: No schedule: all budgets are there from the start.
ALL_UNLOCKED = UnlockedShares()


def unlocked_shares_in_round(
    number: int, axis: int, rotation: CohortRotation, unlocking: UnlockingSchedule
) -> UnlockedShares:
    """What is unlocked in a round, cohort by cohort."""
    cohorts = range(*rotation.active_cohorts(number))
    return UnlockedShares(axis, {c: unlocking.share(number - c + 1) for c in cohorts})


def scale_threshold(threshold: int, share: Fraction) -> int:
    """A share of a threshold, rounded down; what is never offered or never matters stays so."""
    if not 0 <= threshold < INFINITE:
        return threshold
    return threshold * share.numerator // share.denominator
