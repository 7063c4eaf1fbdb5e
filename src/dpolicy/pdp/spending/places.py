"""Places: the balance of one question over the partition space, and its block with most loss.

The question is charged like a rule: by the same balances, blocks and time collapse (theory 6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpolicy.balances.balances import MAX_GRID_CELLS, Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.balances.granularities import RuleGranularities
from dpolicy.balances.partition_space import Granularity
from dpolicy.errors import OperationRejected
from dpolicy.pdp.spending.epsilon_ranking import EpsilonRanking
from dpolicy.privacy.loss import Certificates
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Point, Region, contains, is_empty, region_intersection

#: Number of the only rule.
_RULE = np.zeros(1, np.intp)


#: A region, the cutoff with which it is charged, and the loss there.
PlacedCharge = tuple[Region | None, int, LossArray]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedLoss:
    """Loss of a question at its block with most loss; `point` is None if all blocks are equal.

    With a region to look at, all blocks of that region are equal, and `point` is one of them.
    """

    loss: LossArray
    point: Point | None


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Blocks of a question, as of the day `today`."""

    granularities: RuleGranularities
    today: int

    @property
    def cutoff(self) -> int:
        """The day before which time steps are collapsed; 0 for no collapse."""
        return self.granularities.cutoff(self.today)

    def charge_cutoff(self, month: int) -> int:
        """Return the cutoff with which a release of this month is charged."""
        return self.granularities.cutoff(month)

    def is_charged_at(self, region: Region | None, point: Point | None) -> bool:
        """Return whether a mechanism that reads a region is charged at a point."""
        return point is None or contains(self.granularities.blocks(region, 0, self.cutoff), point)

    def location(self, point: Point | None) -> dict[str, str | int]:
        """Return the location of a point in the dimensions of the question."""
        if point is None:
            return {}
        return self.granularities.location_for_rule(point, 0, self.cutoff)

    def find_largest(
        self,
        charges: Sequence[PlacedCharge],
        within: Region | None,
        certificates: Certificates,
        delta: Fraction,
    ) -> PlacedLoss:
        """Return the loss at the block with the largest ε at δ, among the blocks of `within`.

        `charges` are regions with their cutoff and loss. Of equal blocks, the one with the smallest
        point is the result.
        """
        balances = Balances.zero(self.granularities, len(certificates) + 1)
        for region, cutoff, row in self._meeting(charges, within):
            balances.add(Charge(_RULE, row[np.newaxis], region, cutoff), 1)
            _ensure_few_cells(balances)
        if self.cutoff:
            balances.collapse_time(self.cutoff)
        target = self.granularities.blocks_at(within, 0)
        if not balances.grids.contain(_RULE)[0]:
            point = None if within is None else tuple(low for low, _ in target.boxes[0])
            return PlacedLoss(balances.uniform_losses(_RULE)[0], point)
        segments = balances.segments_for(0)
        touched = segments.touched_cells(target)
        rows = segments.rows(touched.cells)
        keys = touched.keys.tolist()
        (position,) = EpsilonRanking(rows, certificates, delta).largest(1, keys.__getitem__)
        return PlacedLoss(rows[position], touched.point(position))

    def _meeting(
        self, charges: Sequence[PlacedCharge], within: Region | None
    ) -> Iterator[PlacedCharge]:
        """Yield the charges that can change the balance of a block of `within`."""
        if within is None:
            yield from charges
            return
        target = self.granularities.blocks(within, 0, self.cutoff)
        for charge in charges:
            blocks = self.granularities.blocks(charge[0], 0, self.cutoff)
            if not is_empty(region_intersection(blocks, target)):
                yield charge


def _ensure_few_cells(balances: Balances) -> None:
    if any(len(grid.segments) > MAX_GRID_CELLS for grid in balances.grids.grids):
        raise OperationRejected(
            "the releases of this scope read too many different regions for one answer; "
            "help: state a place with `at`, or a smaller scope"
        )


def places_for(enforced: EnforcedPolicy, granularity: Granularity, today: int) -> Places:
    """Return the blocks of a question under a policy."""
    collapse = enforced.policy.accounting.collapse
    return Places(RuleGranularities(enforced.space, (granularity,), _RULE, collapse), today)
