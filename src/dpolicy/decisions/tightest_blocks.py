"""Tightest blocks: where a release exceeds a rule with segments most, or comes closest to it.

Rules in the same grid are compared in the same array operations. A choice between blocks depends on
the losses only, not on how charges cut the space: where several blocks are equal, the smallest
point of the region is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.balances.rule_grids import RuleGrid, RuleNumbers
from dpolicy.balances.touched_cells import BlockPositions, TouchedCells
from dpolicy.decisions.rule_charges import RuleSet, charged_regions, first_point
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray, add_saturating
from dpolicy.privacy.privacy_filter import BoundArrays
from dpolicy.releases.regions import Point, Region

#: Up to this number of amounts per rule, all rules of a grid are compared at once; above it, one
#: by one, because most columns of a rule need no comparison.
MAX_COMPARED_AMOUNTS = 2**14


@dataclass(frozen=True, slots=True)
class TightestBlock:
    """A block of a rule: its smallest point that a release touches, and the balance there."""

    point: Point
    spent: LossArray

    @property
    def first_block(self) -> tuple[Point, LossArray]:
        """The point and the balance there."""
        return self.point, self.spent


@dataclass(frozen=True, slots=True, eq=False)
class BlockChecks:
    """Checks of rules with segments, each at its tightest block; one row per rule.

    `points` are rules × axes.
    """

    holds: NDArray[np.bool_]
    spent: LossArray
    cost: LossArray
    points: BlockPositions


@dataclass(frozen=True, slots=True, eq=False)
class TightestBlocks(Mapping[int, TightestBlock]):
    """Tightest blocks by position among the checked rules, from position `start` on."""

    start: int
    checks: BlockChecks

    def __getitem__(self, position: int) -> TightestBlock:
        row = position - self.start
        if not 0 <= row < len(self):
            raise KeyError(position)
        return TightestBlock(tuple(self.checks.points[row].tolist()), self.checks.spent[row])

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.start + len(self)))

    def __len__(self) -> int:
        return len(self.checks.points)


@dataclass(frozen=True, slots=True, eq=False)
class _ChargedCells:
    """Cells in which rules are charged, in the order of their smallest charged points.

    `spent` is rules × cells × columns, `cost` has one row per rule, `points` one row per cell.
    """

    rules: RuleSet
    spent: LossArray
    cost: LossArray
    points: BlockPositions


def check_blocks(
    section: EnforcedSection, balances: Balances, numbers: RuleNumbers, charges: Sequence[Charge]
) -> BlockChecks:
    """Check rules that have segments, or need them, at the tightest of the blocks charged.

    `numbers` are in ascending order. Raise `InvalidValue` (R008) if the charges of a rule overlap
    in too many ways.
    """
    compared: list[_ChargedCells] = []
    checks: list[tuple[NDArray[np.intp], BlockChecks]] = []
    for part, region, cost in charged_regions(section, balances, numbers, charges):
        if part.grid is None:
            compared.append(_uniform_cells(section, balances, part, region, cost))
            continue
        touched = part.grid.segments.touched_cells(region)
        if len(touched.cells) * part.grid.width <= MAX_COMPARED_AMOUNTS:
            compared.append(_charged_cells(part.grid, part, touched, cost))
            continue
        single = _check_one_by_one(section, part.grid, part, touched, cost)
        checks.append((part.positions, single))
    if compared:
        checks.append(
            (np.concatenate([c.rules.positions for c in compared]), _compare(section, compared))
        )
    return _select_tightest(section, numbers, checks)


def _uniform_cells(
    section: EnforcedSection, balances: Balances, rules: RuleSet, region: Region, cost: LossArray
) -> _ChargedCells:
    """Return the first block of a region, for rules with the same balance in every block."""
    spent = balances.uniform_losses(rules.numbers)
    points = np.array([first_point(section, region)], np.int64)
    return _ChargedCells(rules, spent[:, np.newaxis], cost, points)


def _charged_cells(
    grid: RuleGrid, rules: RuleSet, touched: TouchedCells, cost: LossArray
) -> _ChargedCells:
    order = touched.keys.argsort()
    spent = grid.amounts_in(touched.cells[order], rules.places).transpose(1, 0, 2)
    return _ChargedCells(rules, spent, cost, touched.points.T[order])


def _compare(section: EnforcedSection, parts: Sequence[_ChargedCells]) -> BlockChecks:
    """Check all rules of all parts, each at its tightest cell.

    This is `BoundArrays.violating_or_fullest_cells` for all rules at once. All arrays have one row
    per rule and cell, sorted by rule; `starts` are the rows of the first cell of each rule.
    """
    numbers = np.concatenate([part.rules.numbers for part in parts])
    cost = np.concatenate([part.cost for part in parts])
    rule_counts = [len(part.rules.numbers) for part in parts]
    cell_counts = np.repeat([len(part.points) for part in parts], rule_counts)
    starts = np.cumsum(cell_counts) - cell_counts
    width = cost.shape[1]
    spent = np.concatenate([part.spent.reshape(-1, width) for part in parts])
    bounds = section.bounds_for(numbers)
    room = np.where(bounds.maximum == INFINITE, INFINITE, bounds.maximum - cost)
    is_within = _within_bounds(bounds, spent, room, cell_counts)
    holds: NDArray[np.bool_] = np.logical_and.reduceat(is_within, starts)
    tightest = _fullest_cells(bounds.maximum, spent, room, starts, cell_counts)
    for rule in np.flatnonzero(~holds).tolist():
        start = int(starts[rule])
        violating = start + np.flatnonzero(~is_within[start : start + int(cell_counts[rule])])
        sizes = _displayed_sizes(section, int(numbers[rule]), spent[violating], cost[rule])
        tightest[rule] = violating[sizes.argmax()]
    points = np.concatenate([part.points for part in parts])
    first_points = np.cumsum([0, *(len(part.points) for part in parts[:-1])])
    at = np.repeat(first_points, rule_counts) + tightest - starts
    return BlockChecks(holds, spent[tightest], cost, points[at])


def _within_bounds(
    bounds: BoundArrays, spent: LossArray, room: LossArray, cell_counts: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Return for each rule and cell whether the balance leaves room for the cost."""
    within = spent <= room.repeat(cell_counts, axis=0)
    certified = np.asarray(within[:, :-1].any(axis=1))
    if bounds.require_all.any():
        strict = bounds.require_all.repeat(cell_counts)
        certified[strict] = within[strict, :-1].all(axis=1)
    np.logical_and(certified, within[:, -1], out=certified)
    return certified


def _fullest_cells(
    maximum: LossArray,
    spent: LossArray,
    room: LossArray,
    starts: NDArray[np.intp],
    cell_counts: NDArray[np.intp],
) -> NDArray[np.intp]:
    """Return for each rule the row of its fullest cell, the first of equally full ones.

    It is the cell with the largest amount in the certificate that is least used in the first cell.
    """
    if len(spent) == len(starts):
        return starts
    limits = maximum[:, :-1]
    is_offered = (limits < INFINITE) & (limits >= 0)
    used = spent[starts, :-1] - room[:, :-1]
    shares = np.where(is_offered, used / np.maximum(limits, 1), np.inf)
    amounts = spent[np.arange(len(spent)), shares.argmin(axis=1).repeat(cell_counts)]
    amounts[~is_offered.any(axis=1).repeat(cell_counts)] = 0
    is_fullest = amounts == np.maximum.reduceat(amounts, starts).repeat(cell_counts)
    rows = np.where(is_fullest, np.arange(len(spent)), len(spent))
    first: NDArray[np.intp] = np.minimum.reduceat(rows, starts)
    return first


def _check_one_by_one(
    section: EnforcedSection,
    grid: RuleGrid,
    rules: RuleSet,
    touched: TouchedCells,
    cost: LossArray,
) -> BlockChecks:
    """Check rules in many cells, one rule after the other."""
    first = int(touched.keys.argmin())
    cells = touched.cells.copy()
    cells[0], cells[first] = cells[first], cells[0]
    holds, places = np.empty(len(cost), np.bool_), np.empty(len(cost), np.intp)
    spent = np.empty_like(cost)
    for row, number in enumerate(rules.numbers.tolist()):
        losses = grid.amounts_for(int(rules.places[row]))
        bounds = section.bounds_for(np.array([number]))
        violating, fullest = bounds.violating_or_fullest_cells(losses, cells, cost[row])
        holds[row] = not len(violating)
        if holds[row]:
            places[row] = touched.first(np.searchsorted(touched.cells, fullest))
        else:
            at = np.searchsorted(touched.cells, violating)
            sizes = _displayed_sizes(section, number, losses[:, violating].T, cost[row])
            places[row] = touched.first(at[sizes == sizes.max()])
        spent[row] = losses[:, touched.cells[places[row]]]
    return BlockChecks(holds, spent, cost, touched.points.T[places])


def _displayed_sizes(
    section: EnforcedSection, number: int, spent: LossArray, cost: LossArray
) -> LossArray:
    """Return the displayed losses after a release, in quanta; one row of `spent` per block."""
    return section.formatter_for(number).ranking_keys(add_saturating(spent, cost))


def _select_tightest(
    section: EnforcedSection,
    numbers: RuleNumbers,
    checks: Sequence[tuple[NDArray[np.intp], BlockChecks]],
) -> BlockChecks:
    """Return for each rule the check of the region with the largest loss that exceeds it.

    `checks` are by position in `numbers`. If no region exceeds the rule, it is the region with the
    largest loss; of equal ones, the region with the smallest point.
    """
    positions = np.concatenate([at for at, _ in checks])
    holds, spent, cost, points = (
        np.concatenate([getattr(check, name) for _, check in checks])
        for name in ("holds", "spent", "cost", "points")
    )
    order = positions.argsort(kind="stable")
    if len(order) > len(numbers):
        ends = np.searchsorted(positions[order], np.arange(1, len(numbers)))
        tightest = []
        for number, tied in zip(numbers.tolist(), np.split(order, ends), strict=True):
            if len(tied) > 1:
                tied = tied[holds[tied] == holds[tied].min()]
                sizes = _displayed_sizes(section, number, spent[tied], cost[tied])
                tied = tied[sizes == sizes.max()]
            tightest.append(min(tied.tolist(), key=lambda row: points[row].tolist()))
        order = np.array(tightest, np.intp)
    return BlockChecks(holds[order], spent[order], cost[order], points[order])
