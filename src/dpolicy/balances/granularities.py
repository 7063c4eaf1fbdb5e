"""Granularity of each rule: the dimensions of the partition space by which it is tracked.

Which dimensions split a rule depends on the rule (theory 6.1). A partition splits it if the
partition is stable, the rule does not read the attribute of that name, and its unit does not use
`replace` and has a single value. Time splits it if its unit has a period, into blocks of that
period (6.2). A release is charged along the whole of every other dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.memo import Memo
from dpolicy.balances.partition_space import (
    ALL_TIME,
    Granularity,
    PartitionSpace,
    touched_steps,
)
from dpolicy.errors import InvalidValue
from dpolicy.policy.model import Collapse, Partition
from dpolicy.policy.vocabulary import partition_owners
from dpolicy.predicates.expression import Predicate, reads_attribute
from dpolicy.privacy.units.calendar import Period, PeriodKind, block_index, block_start
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, can_collapse
from dpolicy.releases.regions import Interval, Point, Region, region_from_boxes
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule import RuleProduct

#: Limit of the memo of regions. Pipelines read the same regions again.
MAX_REGIONS_KEPT = 2_048


@dataclass(frozen=True, slots=True, eq=False)
class _KeptBlocks:
    """Blocks that one region touches, by position of the granularity.

    `is_partial` is true where they are not all blocks. Both are set where `is_known` is true.
    """

    blocks: dict[int, Region]
    is_partial: NDArray[np.bool_]
    is_known: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class RuleGranularities:
    """Granularity of each rule of a section.

    `distinct` has each granularity once; `position_by_rule` is its position there, by rule number.
    """

    space: PartitionSpace
    distinct: tuple[Granularity, ...]
    position_by_rule: NDArray[np.intp]
    collapse: Collapse | None = None
    _blocks_by_region: Memo[Region, _KeptBlocks] = field(
        default_factory=lambda: Memo(MAX_REGIONS_KEPT)
    )

    def touches_partially(
        self, region: Region | None, numbers: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Return for which rules the region touches some blocks, but not all."""
        if region is None:
            return np.zeros(len(numbers), dtype=bool)
        kept, positions = self._kept_blocks(region), self.position_by_rule[numbers]
        if not kept.is_known[positions].all():
            for position in set(positions.tolist()):
                self.blocks_at(region, position)
        return kept.is_partial[positions]

    def _kept_blocks(self, region: Region) -> _KeptBlocks:
        return self._blocks_by_region.get_or_compute(region, self._keep_no_blocks)

    def _keep_no_blocks(self, _: Region) -> _KeptBlocks:
        count = len(self.distinct)
        return _KeptBlocks({}, np.zeros(count, np.bool_), np.zeros(count, np.bool_))

    def blocks(self, region: Region | None, number: int, cutoff: int = 0) -> Region:
        """Return the blocks of a rule that a region touches.

        Blocks before the day `cutoff` are collapsed; 0 for no collapse.
        """
        return self.blocks_at(region, int(self.position_by_rule[number]), cutoff)

    def blocks_at(self, region: Region | None, position: int, cutoff: int = 0) -> Region:
        """Return the blocks that a region touches, for the rules with one granularity."""
        if region is None:
            return Region((self.space.box,))
        kept = self._kept_blocks(region)
        if not kept.is_known[position]:
            blocks = self.space.blocks(region, self.distinct[position])
            kept.blocks[position] = blocks
            kept.is_partial[position] = blocks.boxes != (self.space.box,)
            kept.is_known[position] = True
        blocks = kept.blocks[position]
        if cutoff and self.collapses_at(position):
            return _widen_to_collapsed_blocks(blocks, self.collapsed_period, cutoff)
        return blocks

    def collapses(self, number: int) -> bool:
        """Return whether old time steps of a rule are collapsed."""
        return self.collapses_at(int(self.position_by_rule[number]))

    def collapses_at(self, position: int) -> bool:
        """Return whether old time steps of the rules with one granularity are collapsed."""
        period = self.distinct[position].period
        return self.collapse is not None and can_collapse(period, self.collapse.period)

    @property
    def collapsed_period(self) -> Period:
        """The period into which old time steps are collapsed."""
        return self.collapse.period if self.collapse else Period(PeriodKind.YEAR)

    def cutoff(self, day: int) -> int:
        """Return the day before which time steps are collapsed on `day`; 0 for no collapse."""
        if self.collapse is None or not day:
            return 0
        when = date.fromordinal(day)
        months = when.year * 12 + when.month - 1 - self.collapse.after
        if months < 12:
            return 0
        return block_start(
            self.collapsed_period,
            block_index(self.collapsed_period, date(months // 12, months % 12 + 1, 1).toordinal()),
        )

    def location_for_rule(self, point: Point, number: int, cutoff: int = 0) -> dict[str, str | int]:
        """Return the location of a point, in the dimensions by which the rule is tracked."""
        granularity = self.for_rule(number)
        if point[-1] < cutoff and self.collapses(number):
            granularity = replace(granularity, period=self.collapsed_period)
        return self.space.location(point, granularity)

    def for_rule(self, number: int) -> Granularity:
        """Return the granularity of a rule."""
        return self.distinct[int(self.position_by_rule[number])]


@lru_cache(maxsize=2048)
def _widen_to_collapsed_blocks(region: Region, period: Period, cutoff: int) -> Region:
    """Widen a region to whole blocks of `period` before the day `cutoff` (theory 6.3)."""

    def widen_days(days: Interval) -> Interval:
        low, high = days
        if low < cutoff:
            low = touched_steps(period, (low, low + 1))[0]
        if high <= cutoff:
            high = max(high, touched_steps(period, (high - 1, high))[1])
        return low, high

    try:
        return region_from_boxes((*box[:-1], widen_days(box[-1])) for box in region.boxes)
    except InvalidValue:  # too many boxes: charging the whole past is sound
        past = (ALL_TIME[0], max(cutoff, max(box[-1][1] for box in region.boxes)))
        hull = zip(*(box[:-1] for box in region.boxes), strict=True)
        sides = ((min(low for low, _ in side), max(high for _, high in side)) for side in hull)
        return Region(((*sides, past),))


def granularities_for(
    policy: CompiledPolicy, space: PartitionSpace, rules: RuleProduct
) -> RuleGranularities:
    """Determine the granularity of each rule of a section."""
    names = tuple(map(str, policy.partitions))
    by_read = _combinations_by_partitions_read(names, rules)
    numbers: dict[Granularity, int] = {}
    positions = np.empty((len(rules.bases), rules.width), dtype=np.intp)
    for base_number, base in enumerate(rules.bases):
        of_unit = unit_granularity(policy, policy.units[base.unit])
        splits = of_unit.partitions - _partitions_read(names, base.predicate)
        for partitions, combinations in by_read.items():
            granularity = Granularity(splits - partitions, of_unit.period)
            positions[base_number, combinations] = numbers.setdefault(granularity, len(numbers))
    return RuleGranularities(
        space, tuple(numbers), positions.reshape(-1), policy.accounting.collapse
    )


def scope_granularity(
    policy: CompiledPolicy, unit: PrivacyUnit, predicates: Sequence[Predicate]
) -> Granularity:
    """Return the granularity of a rule for this unit with these predicates as its scope."""
    names = tuple(map(str, policy.partitions))
    of_unit = unit_granularity(policy, unit)
    read = (_partitions_read(names, predicate) for predicate in predicates)
    return Granularity(of_unit.partitions.difference(*read), of_unit.period)


def _combinations_by_partitions_read(
    names: Sequence[str], rules: RuleProduct
) -> dict[frozenset[int], list[int]]:
    """Group the combinations of settings by the partitions whose attributes they read.

    Combinations are numbered as in `RuleProduct`: the last extension varies fastest.
    """
    read_by_combination = [frozenset[int]()]
    for axis in rules.axes:
        read_by_setting = [_partitions_read(names, setting.predicate) for setting in axis]
        read_by_combination = [a | b for a in read_by_combination for b in read_by_setting]
    groups: dict[frozenset[int], list[int]] = {}
    for combination, partitions in enumerate(read_by_combination):
        groups.setdefault(partitions, []).append(combination)
    return groups


def _partitions_read(names: Sequence[str], predicate: Predicate) -> frozenset[int]:
    """Return the positions of the partitions whose attribute a predicate reads."""
    return frozenset(n for n, name in enumerate(names) if reads_attribute(predicate, name))


def unit_granularity(policy: CompiledPolicy, unit: PrivacyUnit) -> Granularity:
    """Return the granularity that the unit of a rule allows, before looking at its scope."""
    if unit.relation is NeighbouringRelation.REPLACE:
        return Granularity(frozenset(), None)
    splitting = (
        position
        for position, partition in enumerate(policy.partitions.values())
        if partition.stable and _has_one_value(partition, unit, policy)
    )
    return Granularity(frozenset(splitting), unit.period)


def _has_one_value(partition: Partition, unit: PrivacyUnit, policy: CompiledPolicy) -> bool:
    """Return whether all data of a unit has one value of the partition (theory 6.1 a).

    The value is that of the owner of the partition; the unit is the owner or lies inside one.
    """
    vocabulary = policy.vocabulary
    owners = partition_owners(partition, vocabulary)
    if len(owners) != 1:
        return False
    (owner,) = owners
    return unit.entity == owner or vocabulary.covers(owner, unit.entity)
