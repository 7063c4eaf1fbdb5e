"""Per-release rules decided by loss distributions (docs/theory/exact.md).

All mechanisms of a release are fixed before any of them runs, so their exact composition is sound.
It is computed only where the thresholds of a rule do not hold, and depends on the content of the
release and the policy only, so `certified_epsilon` keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import disjoint_charges
from dpolicy.balances.enforced_policy import EnforcedPolicy, EnforcedSection
from dpolicy.decisions.resolution import ResolvedMechanism
from dpolicy.errors import InvalidValue
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.cost_report import round_down_to_printed_float, round_up_to_printed_float
from dpolicy.privacy.loss_arrays import LossArray, add_saturating
from dpolicy.privacy.loss_distribution.unit_runs import certify_runs
from dpolicy.privacy.privacy_filter import fits_exactly
from dpolicy.releases.decision import DisplayedLoss
from dpolicy.releases.regions import Point


@dataclass(frozen=True, slots=True, eq=False)
class ExactLoss:
    """Certified ε of a release at the δ of a rule, in the block where it is largest.

    `point` is the smallest point of that block, None if the release is the same in all blocks.
    `cost` is the cost by certificates there.
    """

    budget: EpsilonDelta
    epsilon: Fraction
    point: Point | None
    cost: LossArray

    @property
    def holds(self) -> bool:
        """Whether the certified ε is within the budget."""
        return fits_exactly(self.epsilon, self.budget)

    @property
    def delta_limit(self) -> float:
        """The limit of stated δ: all of δ, because the certified ε counts them."""
        return round_down_to_printed_float(self.budget.delta)

    @property
    def remaining_share(self) -> float:
        """The remaining share of the budget's ε; −1 if it is exceeded."""
        if not self.holds:
            return -1.0
        return float(1 - self.epsilon / self.budget.epsilon) if self.budget.epsilon else 0.0

    def display(self, converted: DisplayedLoss) -> DisplayedLoss:
        """Return a displayed loss with the certified ε in place of the converted one."""
        return {**converted, "epsilon": round_up_to_printed_float(self.epsilon)}


def exact_budget(section: EnforcedSection, number: int) -> EpsilonDelta | None:
    """Return the budget that a loss distribution may certify for a rule; None for other rules."""
    rules = section.compiled.rules
    return rules.bounds[int(rules.bound_numbers[number])].exact


def certify_rule(
    enforced: EnforcedPolicy,
    number: int,
    mechanisms: Sequence[ResolvedMechanism],
    rule_numbers: Sequence[NDArray[np.intp]],
    cutoff: int,
) -> ExactLoss | None:
    """Return the certified ε of a release for a per-release rule whose thresholds do not hold.

    `rule_numbers` are the rules that each mechanism matches. Return None if the rule has no exact
    budget, or if a block has no certified ε.
    """
    section = enforced.each_release
    budget = exact_budget(section, number)
    if budget is None:
        return None
    unit = int(section.unit_positions(np.array([number]))[0])
    members = [m for m, own in zip(mechanisms, rule_numbers, strict=True) if number in own]
    bounds = section.bounds_for(np.array([number]))
    worst: ExactLoss | None = None
    for point, block in _distinct_blocks(section, number, members, cutoff):
        cost = reduce(add_saturating, (mechanism.costs[unit] for mechanism in block))
        if bounds.are_within(cost[np.newaxis])[0]:
            continue
        runs = [enforced.mechanism_runs(mechanism.statement)[unit] for mechanism in block]
        epsilon = certify_runs(runs, budget.delta)
        if epsilon is None:
            return None
        if worst is None or epsilon > worst.epsilon:
            worst = ExactLoss(budget, epsilon, point, cost)
    return worst


def _distinct_blocks(
    section: EnforcedSection, number: int, members: Sequence[ResolvedMechanism], cutoff: int
) -> Iterator[tuple[Point | None, Sequence[ResolvedMechanism]]]:
    """Yield each set of mechanisms that read a common block, with the smallest point of one.

    Yield nothing if the mechanisms overlap in too many ways.
    """
    blocks = [section.granularities.blocks(m.region, number, cutoff) for m in members]
    if all(region == blocks[0] for region in blocks):
        yield None, members
        return
    present = np.eye(len(members), dtype=np.int64)
    try:
        cells = disjoint_charges(section.full_extent, list(zip(blocks, present, strict=True)))
    except InvalidValue:
        return
    points: dict[tuple[int, ...], Point] = {}
    for region, row in cells:
        key = tuple(np.flatnonzero(row).tolist())
        sides = zip(region.boxes[0], section.full_extent, strict=True)
        point = tuple(max(low, start) for (low, _), (start, _) in sides)
        points[key] = min(points.get(key, point), point)
    for key, point in sorted(points.items(), key=lambda item: item[1]):
        yield point, [members[position] for position in key]
