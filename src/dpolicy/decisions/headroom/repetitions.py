"""Repetitions: how often the charges of a release fit into each rule, in its tightest block.

The same release adds the same cost to the same blocks every time, so the count of each block is a
floor division (`BoundArrays.count_repetitions`) and nothing is decided twice. Where several blocks
of a rule have the smallest count, the smallest point of the region is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.balances.touched_cells import BlockPositions
from dpolicy.decisions.decide import separate_rules_with_segments
from dpolicy.decisions.rule_charges import RuleSet, charged_regions, first_point
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Region

#: Number of amounts that are compared at a time.
MAX_COMPARED_AMOUNTS = 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Repetitions:
    """The rules that a release charges, and how often its charges fit; one row per rule.

    `counts` are `UNLIMITED` without a limit. `spent` and `cost` are those of the tightest block;
    `points` has its smallest point, rules × axes, where `has_point` is true.
    """

    numbers: NDArray[np.intp]
    counts: LossArray
    spent: LossArray
    cost: LossArray
    points: BlockPositions
    has_point: NDArray[np.bool_]

    def select(self, rows: NDArray[np.intp]) -> Repetitions:
        """Return some of the rules."""
        return Repetitions(
            self.numbers[rows],
            self.counts[rows],
            self.spent[rows],
            self.cost[rows],
            self.points[rows],
            self.has_point[rows],
        )


def count_repetitions(
    section: EnforcedSection, balances: Balances, charges: Sequence[Charge]
) -> Repetitions:
    """Return how often charges fit beside the balances, for every rule that they charge.

    Raise `InvalidValue` (R008) if the charges of a rule overlap in too many ways.
    """
    segmented, (numbers, cost) = separate_rules_with_segments(balances, charges)
    spent = balances.uniform_losses(numbers)
    counts = section.bounds_for(numbers).count_repetitions(spent, cost)
    points = np.zeros((len(numbers), len(section.full_extent)), np.int64)
    uniform = Repetitions(numbers, counts, spent, cost, points, np.zeros(len(numbers), np.bool_))
    if not len(segmented):
        return uniform
    parts = (
        part
        for rules, region, cost in charged_regions(section, balances, segmented, charges)
        for part in _count_in_region(section, balances, rules, region, cost)
    )
    return _select_tightest(_concatenate([uniform, *parts]))


def _count_in_region(
    section: EnforcedSection,
    balances: Balances,
    rules: RuleSet,
    region: Region,
    cost: LossArray,
) -> Iterator[Repetitions]:
    """Yield the counts of rules in one region in which each of them is charged the same."""
    if rules.grid is None:
        spent = balances.uniform_losses(rules.numbers)
        counts = section.bounds_for(rules.numbers).count_repetitions(spent, cost)
        points = np.tile(np.array(first_point(section, region), np.int64), (len(counts), 1))
        yield Repetitions(
            rules.numbers, counts, spent, cost, points, np.ones(len(counts), np.bool_)
        )
        return
    touched = rules.grid.segments.touched_cells(region)
    order = touched.keys.argsort()
    cells, cell_points = touched.cells[order], touched.points.T[order]
    at_a_time = max(1, MAX_COMPARED_AMOUNTS // (len(cells) * rules.grid.width))
    for start in range(0, len(rules.numbers), at_a_time):
        rows = slice(start, start + at_a_time)
        spent = rules.grid.amounts_in(cells, rules.places[rows])
        limits = section.bounds_for(rules.numbers[rows])
        counts = limits.count_repetitions(spent, cost[rows])
        tightest, all_rules = counts.argmin(axis=0), np.arange(counts.shape[1])
        yield Repetitions(
            rules.numbers[rows],
            counts[tightest, all_rules],
            spent[tightest, all_rules],
            cost[rows],
            cell_points[tightest],
            np.ones(len(all_rules), np.bool_),
        )


def _concatenate(parts: Sequence[Repetitions]) -> Repetitions:
    return Repetitions(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("numbers", "counts", "spent", "cost", "points", "has_point")
        )
    )


def _select_tightest(repetitions: Repetitions) -> Repetitions:
    """Return each rule once, with its smallest count; of equal ones, with the smallest point."""
    order = np.lexsort((*repetitions.points.T[::-1], repetitions.counts, repetitions.numbers))
    is_first = np.diff(repetitions.numbers[order], prepend=-1) != 0
    return repetitions.select(order[is_first])
