"""Charges of a release to rules: which rules have the same costs in the same regions.

The cost of a mechanism depends on the unit of a rule, so most rules of a release have the same
costs. What depends on the costs only is computed once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances, Charge, disjoint_charges
from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.balances.rule_grids import RuleGrid, RuleNumbers
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Point, Region

#: Blocks of a rule, and the cost there.
BlockCosts = list[tuple[Region, LossArray]]

#: Whether a charge charges each rule, and the row of each rule that it charges.
_ChargedRows = tuple[NDArray[np.bool_], LossArray]


@dataclass(frozen=True, slots=True, eq=False)
class RuleSet:
    """Rules with the same granularity: in one grid, or without segments so far.

    `positions` are those among all checked rules, `places` those in the grid.
    """

    granularity: int
    numbers: RuleNumbers
    positions: NDArray[np.intp]
    grid: RuleGrid | None
    places: NDArray[np.intp]

    def select(self, rows: NDArray[np.intp]) -> RuleSet:
        """Return some of the rules."""
        places = self.places if self.grid is None else self.places[rows]
        return RuleSet(
            self.granularity, self.numbers[rows], self.positions[rows], self.grid, places
        )


def charged_regions(
    section: EnforcedSection, balances: Balances, numbers: RuleNumbers, charges: Sequence[Charge]
) -> Iterator[tuple[RuleSet, Region, LossArray]]:
    """Yield disjoint regions in which rules are charged, with the cost there, a row per rule.

    `numbers` are rules that have segments or need them, in ascending order. A rule may occur with
    several regions. Raise `InvalidValue` (R008) if its charges overlap in too many ways.
    """
    for rules in _rule_sets(balances, numbers):
        for part, disjoint in _disjoint_charges(section, rules, charges):
            for region, cost in disjoint:
                yield part, region, np.broadcast_to(cost, (len(part.numbers), cost.shape[-1]))


def first_point(section: EnforcedSection, region: Region) -> Point:
    """Return the smallest point of the first box of a region."""
    sides = zip(region.boxes[0], section.full_extent, strict=True)
    return tuple(max(low, start) for (low, _), (start, _) in sides)


def _rule_sets(balances: Balances, numbers: RuleNumbers) -> Iterator[RuleSet]:
    is_inside = balances.grids.contain(numbers)
    inside, outside = np.flatnonzero(is_inside), np.flatnonzero(~is_inside)
    for part in balances.grids.parts(numbers[inside]):
        positions = inside[part.positions]
        yield RuleSet(part.grid.granularity, numbers[positions], positions, part.grid, part.places)
    granularities = balances.granularities.position_by_rule[numbers[outside]]
    for granularity in sorted(set(granularities.tolist())):
        positions = outside[granularities == granularity]
        yield RuleSet(granularity, numbers[positions], positions, None, positions[:0])


def _disjoint_charges(
    section: EnforcedSection, rules: RuleSet, charges: Sequence[Charge]
) -> Iterator[tuple[RuleSet, BlockCosts]]:
    """Yield rules with the same charges, and disjoint regions with the cost there.

    The cost is one row per rule, or one row for all rules.
    """
    if len(charges) > 1:
        groups = group_by_cost(section, rules.granularity, rules.numbers, charges)
        for rows, (costs,) in groups:
            yield rules.select(rows), disjoint_charges(section.full_extent, costs)
        return
    (charge,) = charges
    region = section.granularities.blocks_at(charge.region, rules.granularity, charge.cutoff)
    cost = charge.rows[np.searchsorted(charge.rule_numbers, rules.numbers)]
    yield rules, [(region, cost)]


def group_by_cost(
    section: EnforcedSection,
    granularity: int,
    numbers: RuleNumbers,
    *charge_lists: Sequence[Charge],
) -> Iterator[tuple[NDArray[np.intp], list[BlockCosts]]]:
    """Group rules with the same granularity and the same costs in every list of charges.

    Yield the positions of the rules of a group in `numbers`, and for each list the blocks that are
    charged, with their costs.
    """
    charges = [charge for charge_list in charge_lists for charge in charge_list]
    blocks = [
        section.granularities.blocks_at(charge.region, granularity, charge.cutoff)
        for charge in charges
    ]
    charged = [_select_rows(charge, numbers) for charge in charges]
    ends = np.cumsum([0, *(len(charge_list) for charge_list in charge_lists)]).tolist()
    for positions in _group_equal_rows(charged, len(numbers)):
        costs = [
            (region, rows[positions[0]]) if is_charged[positions[0]] else None
            for region, (is_charged, rows) in zip(blocks, charged, strict=True)
        ]
        by_list = [costs[start:end] for start, end in pairwise(ends)]
        yield positions, [[cost for cost in costs if cost is not None] for costs in by_list]


def _select_rows(charge: Charge, numbers: RuleNumbers) -> _ChargedRows:
    """Return which rules a charge charges, and one row per rule."""
    at = np.searchsorted(charge.rule_numbers, numbers)
    is_charged = np.zeros(len(numbers), np.bool_)
    inside = np.flatnonzero(at < len(charge.rule_numbers))
    is_charged[inside] = charge.rule_numbers[at[inside]] == numbers[inside]
    rows = np.zeros((len(numbers), charge.rows.shape[1]), np.int64)
    rows[is_charged] = charge.rows[at[is_charged]]
    return is_charged, rows


def _group_equal_rows(charged: Sequence[_ChargedRows], count: int) -> Iterator[NDArray[np.intp]]:
    """Yield the positions of rules that the same charges charge with the same rows."""
    table = np.hstack([np.column_stack([is_charged, rows]) for is_charged, rows in charged])
    groups: dict[bytes, list[int]] = {}
    for position in range(count):
        groups.setdefault(table[position].tobytes(), []).append(position)
    for positions in groups.values():
        yield np.array(positions, np.intp)
