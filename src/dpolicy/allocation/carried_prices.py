"""Dual prices of earlier rounds, used as the opportunity cost of budget.

A round that spends everything leaves less for later rounds, which may have releases of higher
utility. The prices of later rounds are unknown; those of earlier rounds estimate them. A price is
kept per block of a rule, refers to the whole budget of that block, and decays from round to round.
Prices depend only on requests and published decisions, so selecting by them reveals nothing about
data (theory 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.problem.candidates import CandidatePositions, RuleDemand
from dpolicy.allocation.problem.knapsack import AllocationProblem, Solution
from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.privacy.loss import INFINITE

#: Factor by which the weight of a price falls per round.
PRICE_DECAY = 0.9
#: Prices with a smaller weight, relative to the latest round, are dropped.
MIN_PRICE_WEIGHT = 0.1
#: Smallest remaining share of a row's budget by which its price is divided.
MIN_REMAINING_SHARE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class CarriedPrices:
    """Prices by rule and block (blocks × axes) with their ages; `rounds` is the number of rounds.

    The age of a price is the number of rounds since it was paid.
    """

    rules: NDArray[np.intp]
    blocks: CandidatePositions
    prices: NDArray[np.float64]
    ages: NDArray[np.int64]
    rounds: int

    @staticmethod
    def empty(axes: int) -> CarriedPrices:
        """Return prices before the first round."""
        none = np.empty(0, np.intp)
        return CarriedPrices(
            none, np.empty((0, axes), np.int64), np.empty(0), np.empty(0, np.int64), 0
        )

    def with_round(self, problem: AllocationProblem, solution: Solution) -> CarriedPrices:
        """Return these prices, one round older, and the prices of a new round."""
        priced = np.flatnonzero(solution.prices > 0).tolist()
        rows = [problem.rows[number] for number in priced]
        shares = np.maximum(np.array([row.remaining_share for row in rows]), MIN_REMAINING_SHARE)
        kept = PRICE_DECAY ** (self.ages + 1) >= MIN_PRICE_WEIGHT
        return CarriedPrices(
            np.append(self.rules[kept], np.array([row.rule for row in rows], np.intp)),
            np.vstack([self.blocks[kept], *(row.block for row in rows)]),
            np.append(self.prices[kept], solution.prices[priced] / shares),
            np.append(self.ages[kept] + 1, np.zeros(len(rows), np.int64)),
            self.rounds + 1,
        )

    def opportunity_costs(
        self,
        section: EnforcedSection,
        demands: Mapping[int, RuleDemand],
        count: int,
        cohort_axis: int | None,
    ) -> NDArray[np.float64]:
        """Return, per candidate, the average price that earlier rounds paid for its budget shares.

        The position on the cohort axis is ignored, because each round selects the active cohorts.
        """
        costs = np.zeros(count)
        total_weight = sum(PRICE_DECAY**age for age in range(1 + int(self.ages.max(initial=0))))
        weighted = self.prices * PRICE_DECAY**self.ages / total_weight
        for rule in np.unique(self.rules).tolist():
            if rule in demands:
                of_rule, demand = self.rules == rule, demands[rule]
                shares = budget_shares(section, rule, demand)
                used = largest_shares(demand, shares, self.blocks[of_rule], cohort_axis)
                costs[np.unique(demand.owner)] += (used * weighted[of_rule]).sum(axis=1)
        return costs


def largest_shares(
    demand: RuleDemand,
    shares: NDArray[np.float64],
    blocks: CandidatePositions,
    ignored_axis: int | None,
) -> NDArray[np.float64]:
    """Return the largest share of each block that each candidate uses, candidates × blocks.

    `shares` is the budget share of each kind of cost. The position on `ignored_axis` is ignored.
    """
    used = np.repeat(shares[demand.kind[demand.item_of_box]][:, None], len(blocks), axis=1)
    for axis in range(blocks.shape[1]):
        if axis != ignored_axis:
            position = blocks[:, axis]
            starts_before = demand.low[axis][:, None] <= position
            used *= starts_before & (position < demand.high[axis][:, None])
    first = np.flatnonzero(np.diff(demand.owner[demand.item_of_box], prepend=-1))
    largest: NDArray[np.float64] = np.maximum.reduceat(used, first, axis=0)
    return largest


def budget_shares(section: EnforcedSection, rule: int, demand: RuleDemand) -> NDArray[np.float64]:
    """Return, per kind of cost, its share of the whole budget at its best certificate."""
    limits = section.bounds_for(np.array([rule], np.intp)).maximum[0, :-1]
    counts = (limits > 0) & (limits < INFINITE)
    shares = demand.table[:, :-1][:, counts] / limits[counts]
    smallest: NDArray[np.float64] = shares.min(axis=1, initial=1.0)
    return smallest
