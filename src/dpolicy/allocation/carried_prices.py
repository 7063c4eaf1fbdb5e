"""Prices of past rounds → what later rounds would pay for the budgets that a candidate takes.

A round that takes all it can leaves less to the next ones, which may have better use for it. What
they would pay is not known; what rounds before paid is. A price is kept where it arose, a block of
a rule, for the whole budget of that block, and fades from round to round. Only requests and
released decisions enter, so that choosing by these prices reveals nothing (theory 7).
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

#: What is left of the weight of a round's prices after another round.
PRICE_DECAY = 0.9
#: Prices that weigh less than this part of the latest round's are forgotten.
MIN_PRICE_WEIGHT = 0.1
#: A row with less of its budget left is priced as if this much were left.
MIN_REMAINING_SHARE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class CarriedPrices:
    """Prices by rule and block, blocks × axes, each with the age of its round; and their rounds."""

    rules: NDArray[np.intp]
    blocks: CandidatePositions
    prices: NDArray[np.float64]
    ages: NDArray[np.int64]
    rounds: int

    @staticmethod
    def empty(axes: int) -> CarriedPrices:
        """A market before its first round."""
        none = np.empty(0, np.intp)
        return CarriedPrices(
            none, np.empty((0, axes), np.int64), np.empty(0), np.empty(0, np.int64), 0
        )

    def with_round(self, problem: AllocationProblem, allocation: Solution) -> CarriedPrices:
        """The market with one more round, whose rows had prices."""
        paid = np.flatnonzero(allocation.prices > 0).tolist()
        rows = [problem.rows[number] for number in paid]
        rest = np.maximum(np.array([row.remaining_share for row in rows]), MIN_REMAINING_SHARE)
        kept = PRICE_DECAY ** (self.ages + 1) >= MIN_PRICE_WEIGHT
        return CarriedPrices(
            np.append(self.rules[kept], np.array([row.rule for row in rows], np.intp)),
            np.vstack([self.blocks[kept], *(row.block for row in rows)]),
            np.append(self.prices[kept], allocation.prices[paid] / rest),
            np.append(self.ages[kept] + 1, np.zeros(len(rows), np.int64)),
            self.rounds + 1,
        )

    def opportunity_costs(
        self,
        section: EnforcedSection,
        demands: Mapping[int, RuleDemand],
        count: int,
        cohorts: int | None,
    ) -> NDArray[np.float64]:
        """By candidate, what the shares that it takes of budgets were worth, on average.

        On the axis of the cohorts places do not matter: each round selects those that are active.
        """
        found = np.zeros(count)
        whole = sum(PRICE_DECAY**age for age in range(1 + int(self.ages.max(initial=0))))
        worths = self.prices * PRICE_DECAY**self.ages / whole
        for rule in np.unique(self.rules).tolist():
            if rule in demands:
                here, wanted = self.rules == rule, demands[rule]
                taken = largest_shares(
                    wanted, budget_shares(section, rule, wanted), self.blocks[here], cohorts
                )
                found[np.unique(wanted.owner)] += (taken * worths[here]).sum(axis=1)
        return found


def largest_shares(
    demand: RuleDemand, shares: NDArray[np.float64], blocks: CandidatePositions, without: int | None
) -> NDArray[np.float64]:
    """The largest share of each block that each candidate takes, one axis aside."""
    taken = np.repeat(shares[demand.kind[demand.item_of_box]][:, None], len(blocks), axis=1)
    for axis in range(blocks.shape[1]):
        if axis != without:
            at = blocks[:, axis]
            taken *= (demand.low[axis][:, None] <= at) & (at < demand.high[axis][:, None])
    first = np.flatnonzero(np.diff(demand.owner[demand.item_of_box], prepend=-1))
    most: NDArray[np.float64] = np.maximum.reduceat(taken, first, axis=0)
    return most


def budget_shares(section: EnforcedSection, rule: int, demand: RuleDemand) -> NDArray[np.float64]:
    """By kind of cost, the share of the whole budget that it takes at its best certificate."""
    limits = section.bounds_for(np.array([rule], np.intp)).maximum[0, :-1]
    counts = (limits > 0) & (limits < INFINITE)
    shares = demand.table[:, :-1][:, counts] / limits[counts]
    least: NDArray[np.float64] = shares.min(axis=1, initial=1.0)
    return least
