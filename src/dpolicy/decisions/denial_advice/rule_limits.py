"""Rule limits: what exceeded rules leave to a release, at the blocks where it exceeds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.decisions.decide import RuleChecks, Verdict
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Point, Region


@dataclass(frozen=True, slots=True, eq=False)
class RuleLimit:
    """The room that an exceeded rule leaves at its tightest block, and the cost of the release.

    Both are in quanta of each certificate, with the δ-side last. `columns` are the certificates
    that can bound a release; one is enough unless `require_all`.
    """

    section: EnforcedSection
    number: int
    point: Point | None
    cutoff: int
    room: LossArray
    cost: LossArray
    columns: tuple[int, ...]
    require_all: bool

    @property
    def delta_share(self) -> float:
        """The share of the δ of the release for which there is room; 1 if all of it fits."""
        room, cost = int(self.room[-1]), int(self.cost[-1])
        return 1.0 if cost <= max(room, 0) else max(room, 0) / cost

    def includes(self, region: Region | None) -> bool:
        """Return whether a mechanism that reads a region is charged at the block."""
        if not self.point or region is None:
            return True
        blocks = self.section.granularities.blocks(region, self.number, self.cutoff)
        return any(
            all(low <= value < high for value, (low, high) in zip(self.point, box, strict=True))
            for box in blocks.boxes
        )


def exceeded_limits(verdict: Verdict) -> Iterator[RuleLimit]:
    """Yield the limit of every exceeded rule of a verdict."""
    for checks in verdict.checks:
        for position in np.flatnonzero(~checks.holds).tolist():
            yield _limit_at(checks, position)


def _limit_at(checks: RuleChecks, position: int) -> RuleLimit:
    """Return the limit that an exceeded rule sets at its tightest block."""
    number, spent = int(checks.rule_numbers[position]), checks.spent[position]
    point: Point | None = None
    if position in checks.tightest_cells:
        point, spent = checks.tightest_cells[position].first_block
    bounds = checks.section.bounds_for(np.array([number]))
    maximum, require_all = bounds.maximum[0], bool(bounds.require_all[0])
    room = maximum - spent
    bounded = np.flatnonzero((maximum < INFINITE)[:-1] & ((room[:-1] > 0) | require_all))
    columns = tuple(bounded.tolist())
    cost = checks.cost[position]
    return RuleLimit(checks.section, number, point, checks.cutoff, room, cost, columns, require_all)
