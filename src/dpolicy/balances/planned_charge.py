"""Planned charge: the charge of a release, prepared so that comparing and adding it is quick.

What does not depend on the balances is computed once: limits, displayed columns, touched blocks.
Where the amounts of the rules are in the balances is a *layout*. It is computed again only after
the rules of a grid or its cells changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.balances.kernel.kernel import GridRows, RuleRows, TightCell, TightRule
from dpolicy.balances.touched_cells import BlockPositions, SegmentCells
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray, add_saturating

#: Up to this number of amounts of a rule in the touched cells, a charge has a layout.
MAX_PLANNED_AMOUNTS = 2**16

_MAX_AMOUNT = np.iinfo(np.int64).max
_BY_POSITION = itemgetter(1)


@dataclass(frozen=True, slots=True, eq=False)
class GridCells:
    """The cells of one grid that a charge touches, in the order of their points.

    `number` is that of the grid; `layout` is that of its segments. `places` are those of its rules
    by position in the charge; `points` has one row per cell. `needs_no_cut` is true if an addition
    of the charge splits neither a cell nor the grid.
    """

    number: int
    layout: object
    places: dict[int, int]
    rows: GridRows
    cells: SegmentCells
    points: BlockPositions
    needs_no_cut: bool


#: A rule without segments, or a rule with segments at one of its cells.
RankedRule = TightRule | TightCell


@dataclass(frozen=True, slots=True, eq=False)
class ChargeLayout:
    """Where the amounts of the rules of a charge are in some balances.

    `layout` is that of the grids. `rows` are the rules without segments. `grid_by_position` is by
    position of a rule with segments in the charge. `needs_no_cut` is true if all grids are cut.
    """

    layout: object
    rows: RuleRows
    grids: tuple[GridCells, ...]
    grid_by_position: dict[int, GridCells]
    needs_no_cut: bool

    def is_current(self, balances: Balances) -> bool:
        """Return whether rules and cells of the grids are still those of the layout."""
        grids = balances.grids
        if self.layout is not grids.layout:
            return False
        return not self.grids or all(
            part.layout is grids.grids[part.number].segments.layout for part in self.grids
        )

    def decide(self, balances: Balances, count: int) -> Sequence[RankedRule] | None:
        """Return up to `count` tightest rules; None if the charge exceeds a rule.

        Rules are in the order of remaining share, and of position where that is equal.
        """
        uniform = self.rows.decide(balances.finite, balances.infinite)
        if uniform is None or not self.grids:
            return uniform
        ranked: list[RankedRule] = [*uniform]
        for part in self.grids:
            amounts = balances.grids.grids[part.number].segments.stored_amounts
            cells = part.rows.decide(amounts, part.cells)
            if cells is None:
                return None
            ranked += cells
        ranked.sort()
        return ranked[:count]

    def find_exceeded(self, balances: Balances) -> Sequence[RankedRule]:
        """Return the rules that the charge exceeds, in the order of their numbers.

        With reserves, a rule in a grid is there once for each cell in which it is exceeded.
        """
        exceeded: list[RankedRule] = [*self.rows.find_exceeded(balances.finite, balances.infinite)]
        for part in self.grids:
            amounts = balances.grids.grids[part.number].segments.stored_amounts
            exceeded += part.rows.find_exceeded(amounts, part.cells)
        exceeded.sort(key=_BY_POSITION)
        return exceeded

    def add_to(self, balances: Balances) -> None:
        """Add the charge; the cells must be cut."""
        self.rows.charge(balances.finite, balances.infinite)
        for part in self.grids:
            amounts = balances.grids.grids[part.number].segments.stored_amounts
            part.rows.charge(amounts, part.cells)


@dataclass(frozen=True, slots=True, eq=False)
class RuleLimits:
    """Limits and displayed columns of some rules, a row per rule; as arguments of the kernel.

    `reserves` are those of the columns, `reserve_columns` the columns with one. `has_one_number` is
    false if a rule displays several numbers.
    """

    maximum: LossArray
    require_all: NDArray[np.bool_]
    added: LossArray
    is_displayed: NDArray[np.bool_]
    reserves: LossArray
    reserve_columns: NDArray[np.intp]
    has_one_number: bool


@dataclass(slots=True, eq=False)
class PlannedCharge:
    """A charge with the limits of its rules; made by `plan_charge`. It keeps the last layout."""

    charge: Charge
    limits: RuleLimits
    is_partial: NDArray[np.bool_]
    _layout: ChargeLayout | None = field(default=None, init=False)
    _costs: list[tuple[int, int]] | None = field(default=None, init=False)

    @property
    def displayed_costs(self) -> list[tuple[int, int]]:
        """The smallest sum of the cost to each rule, as `DisplayedNumber`, and its variance."""
        if self._costs is None:
            rows = self.charge.rows
            sums = np.where(rows >= INFINITE, INFINITE, rows + self.limits.added)
            sums[~self.limits.is_displayed] = _MAX_AMOUNT
            quanta = np.maximum(sums.min(axis=1, initial=_MAX_AMOUNT), 0).tolist()
            self._costs = list(zip(quanta, self._cost_variances(), strict=True))
        return self._costs

    def _cost_variances(self) -> list[int]:
        """Return the smallest cost + reserve of each rule; `INFINITE` without reserves."""
        columns = self.limits.reserve_columns
        if not len(columns):
            return [INFINITE] * len(self.charge.rows)
        amounts = self.charge.rows[:, columns]
        sums = np.where(amounts >= INFINITE, INFINITE, amounts + self.limits.reserves[columns])
        variances: list[int] = sums.min(axis=1).tolist()
        return variances

    def locate(self, balances: Balances) -> ChargeLayout | None:
        """Return the layout of the charge in balances.

        Return None if a rule gets segments by this charge, or if the charge touches many cells.
        """
        layout = self._layout
        if layout is None or not layout.is_current(balances):
            layout = self._layout = self._find_layout(balances, layout)
        return layout

    def ensure_few_cuts(self, balances: Balances) -> None:
        """Raise `InvalidValue` (R008) if the charge cuts a grid into too many cells."""
        layout = self.locate(balances)
        if layout is None or not layout.needs_no_cut:
            balances.ensure_few_cuts([self.charge])

    def add_to(self, balances: Balances) -> None:
        """Add the charge of one release."""
        layout = self.locate(balances)
        if layout is None or not layout.needs_no_cut:
            balances.add(self.charge, 1)
        else:
            layout.add_to(balances)

    def after_row(self, balances: Balances, rule: RankedRule, grid: GridCells | None) -> LossArray:
        """Return the loss of a rule after the release, at its cell of a grid."""
        position, cost = rule[1], self.charge.rows[rule[1]]
        if grid is None:
            numbers = self.charge.rule_numbers[position : position + 1]
            return add_saturating(balances.uniform_losses(numbers)[0], cost)
        amounts = balances.grids.grids[grid.number].amounts_for(grid.places[position])
        return add_saturating(amounts[:, grid.cells[rule[-1]]], cost)

    def _find_layout(self, balances: Balances, earlier: ChargeLayout | None) -> ChargeLayout | None:
        """Return a new layout; it shares what did not change with an earlier one."""
        grids = balances.grids
        if earlier is not None and earlier.layout is grids.layout:
            rows, parts = earlier.rows, [self._refresh(balances, part) for part in earlier.grids]
        else:
            if not grids.grids and not self.is_partial.any():
                return ChargeLayout(grids.layout, self._uniform_rows(), (), {}, needs_no_cut=True)
            is_inside = grids.contain(self.charge.rule_numbers)
            if (self.is_partial & ~is_inside).any():
                return None
            outside = np.flatnonzero(~is_inside)
            rows = RuleRows(self.charge.rule_numbers[outside], *self._arrays(outside))
            parts = self._find_parts(balances, np.flatnonzero(is_inside))
        located = tuple(part for part in parts if part is not None)
        if len(located) < len(parts):
            return None
        by_position = {position: part for part in located for position in part.places}
        needs_no_cut = all(part.needs_no_cut for part in located)
        return ChargeLayout(grids.layout, rows, located, by_position, needs_no_cut)

    def _uniform_rows(self) -> RuleRows:
        """Return all rules, of which none has segments."""
        return RuleRows(
            np.ascontiguousarray(self.charge.rule_numbers, np.intp),
            np.ascontiguousarray(self.charge.rows),
            self.limits.maximum,
            self.limits.require_all,
            self.limits.added,
            self.limits.is_displayed,
            self.limits.reserves,
        )

    def _find_parts(self, balances: Balances, inside: NDArray[np.intp]) -> list[GridCells | None]:
        """Return the cells of all grids with rules of the charge, at the positions `inside`."""
        parts, numbers = [], self.charge.rule_numbers[inside]
        for part in balances.grids.parts(numbers):
            positions = inside[part.positions]
            number = int(balances.grids.grid_by_rule[numbers[part.positions[0]]])
            places = dict(zip(positions.tolist(), part.places.tolist(), strict=True))
            rows = GridRows(part.places, *self._arrays(positions))
            parts.append(self._touch_cells(balances, number, places, rows))
        return parts

    def _refresh(self, balances: Balances, part: GridCells) -> GridCells | None:
        if part.layout is balances.grids.grids[part.number].segments.layout:
            return part
        return self._touch_cells(balances, part.number, part.places, part.rows)

    def _touch_cells(
        self, balances: Balances, number: int, places: dict[int, int], rows: GridRows
    ) -> GridCells | None:
        """Return the cells of a grid that the charge touches; None if they are too many or none."""
        grid = balances.grids.grids[number]
        segments, charge = grid.segments, self.charge
        blocks = balances.granularities.blocks_at(charge.region, grid.granularity, charge.cutoff)
        touched = segments.touched_cells(blocks)
        if not 0 < len(touched.cells) * grid.width <= MAX_PLANNED_AMOUNTS:
            return None
        order = touched.keys.argsort()
        return GridCells(
            number,
            segments.layout,
            places,
            rows,
            np.ascontiguousarray(touched.cells[order], np.intp),
            touched.points.T[order],
            not grid.is_sparse(len(places)) and segments.is_cut_along(blocks),
        )

    def _arrays(
        self, at: NDArray[np.intp]
    ) -> tuple[
        LossArray,
        LossArray,
        NDArray[np.bool_],
        LossArray,
        NDArray[np.bool_],
        LossArray,
        NDArray[np.intp],
    ]:
        """Return the arguments of the kernel for the rules at some positions."""
        return (
            self.charge.rows[at],
            self.limits.maximum[at],
            self.limits.require_all[at],
            self.limits.added[at],
            self.limits.is_displayed[at],
            self.limits.reserves,
            at,
        )


def plan_charge(section: EnforcedSection, charge: Charge) -> PlannedCharge | None:
    """Prepare a charge; return None if a rule displays several numbers."""
    numbers = charge.rule_numbers
    limits: RuleLimits = section.rule_limits.get_or_compute(
        numbers.tobytes(), lambda _: _find_limits(section, numbers)
    )
    if not limits.has_one_number:
        return None
    is_partial = section.granularities.touches_partially(charge.region, numbers)
    return PlannedCharge(charge, limits, is_partial)


def _find_limits(section: EnforcedSection, numbers: NDArray[np.intp]) -> RuleLimits:
    budgets = section.compiled.rules.budget_numbers[numbers]
    bounds, display = section.bounds_for(numbers), section.display_columns
    return RuleLimits(
        bounds.maximum,
        bounds.require_all,
        display.added[budgets],
        display.is_displayed[budgets],
        display.reserves,
        np.flatnonzero(display.reserves >= 0),
        bool(display.has_one_number[budgets].all()),
    )
