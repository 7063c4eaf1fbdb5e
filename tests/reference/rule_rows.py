"""Naive twin of `dpolicy.balances.kernel`: parts of `decide`, `reasons_for`, `Balances.add`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.granularities import RuleGranularities
from dpolicy.balances.kernel.numpy_kernel import TightCell, TightRule
from dpolicy.balances.loss_display import DisplayedNumber
from dpolicy.balances.partition_space import PartitionSpace
from dpolicy.balances.rule_grids import RuleGrids
from dpolicy.decisions.reasons import MAX_REASONS
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray, add_saturating
from dpolicy.privacy.privacy_filter import BoundArrays


@dataclass(frozen=True, slots=True, eq=False)
class SlowRows:
    """`RuleRows` by the code that decides rule by rule and formats each reason."""

    numbers: NDArray[np.intp]
    cost: LossArray
    maximum: LossArray
    require_all: NDArray[np.bool_]
    added: LossArray
    is_displayed: NDArray[np.bool_]
    reserves: LossArray

    def decide(self, finite: LossArray, infinite: NDArray[np.int32]) -> list[TightRule] | None:
        """Return the tightest rules after the release; None if it exceeds a rule."""
        before = _balances(finite, infinite).uniform_losses(self.numbers)
        after = add_saturating(before, self.cost)
        bounds = BoundArrays(self.maximum, self.require_all)
        if not bounds.are_within(after).all():
            return None
        shares = bounds.remaining_share(after)
        tightest = np.lexsort((self.numbers, shares))[:MAX_REASONS].tolist()
        return [
            (
                float(shares[position]),
                position,
                self._display(before, position),
                self._display(after, position),
                int(before[position, -1]),
                int(after[position, -1]),
                self._variance(before[position]),
                self._variance(after[position]),
            )
            for position in tightest
        ]

    def find_exceeded(self, finite: LossArray, infinite: NDArray[np.int32]) -> list[TightRule]:
        """Return the rules that the release exceeds."""
        before = _balances(finite, infinite).uniform_losses(self.numbers)
        after = add_saturating(before, self.cost)
        bounds = BoundArrays(self.maximum, self.require_all)
        shares = bounds.remaining_share(after)
        return [
            (
                float(shares[position]),
                position,
                self._display(before, position),
                self._display(after, position),
                int(before[position, -1]),
                int(after[position, -1]),
                self._variance(before[position]),
                self._variance(after[position]),
            )
            for position in np.flatnonzero(~bounds.are_within(after)).tolist()
        ]

    def charge(self, finite: LossArray, infinite: NDArray[np.int32]) -> None:
        """Add the cost of the release."""
        _balances(finite, infinite).add(Charge(self.numbers, self.cost), 1)

    def _display(self, rows: LossArray, position: int) -> int:
        columns = np.flatnonzero(self.is_displayed[position])
        added = self.added[position, columns]
        number = DisplayedNumber("epsilon", columns, added, float)
        return int(number.quanta(rows[position : position + 1])[0])

    def _variance(self, row: LossArray) -> int:
        """Return the smallest amount + reserve; `INFINITE` without reserves."""
        finite: list[int] = [
            amount + reserve
            for amount, reserve in zip(row.tolist(), self.reserves.tolist(), strict=True)
            if reserve >= 0 and amount < INFINITE
        ]
        return min([*finite, INFINITE])


@dataclass(frozen=True, slots=True, eq=False)
class SlowCells(SlowRows):
    """`GridRows` by the code that compares one rule after the other; `numbers` are places."""

    def decide(self, amounts: LossArray, cells: NDArray[np.intp]) -> list[TightCell] | None:  # type: ignore[override]
        """Return the tightest rules after the release, each at its fullest cell."""
        compared = [self._compare(position, amounts, cells) for position in range(len(self.cost))]
        if any(exceeded for exceeded, _ in compared):
            return None
        return sorted(self._describe(n, amounts, cells, at) for n, (_, at) in enumerate(compared))[
            :MAX_REASONS
        ]

    def find_exceeded(self, amounts: LossArray, cells: NDArray[np.intp]) -> list[TightCell]:  # type: ignore[override]
        """Return the rules that the release exceeds, each at its cell with the largest loss.

        With reserves, return each rule at each cell in which it is exceeded.
        """
        if self.reserves.max() >= 0:
            return [
                self._describe(position, amounts, cells, at)
                for position in range(len(self.cost))
                for at, cell in enumerate(cells.tolist())
                if self._is_exceeded(position, self._losses(position, amounts)[:, cell])
            ]
        compared = [self._compare(position, amounts, cells) for position in range(len(self.cost))]
        return [
            self._describe(position, amounts, cells, at)
            for position, (exceeded, at) in enumerate(compared)
            if exceeded
        ]

    def charge(self, amounts: LossArray, cells: NDArray[np.intp]) -> None:  # type: ignore[override]
        """Add the cost of the release to the amounts of the cells."""
        for position in range(len(self.cost)):
            losses = self._losses(position, amounts)
            for cell in cells.tolist():
                losses[:, cell] = np.minimum(losses[:, cell] + self.cost[position], INFINITE)

    def _compare(
        self, position: int, amounts: LossArray, cells: NDArray[np.intp]
    ) -> tuple[bool, int]:
        """Return whether a rule is exceeded, and the position of its tightest cell."""
        losses, cost = self._losses(position, amounts), self.cost[position]
        order = cells.tolist()
        violating = [cell for cell in order if self._is_exceeded(position, losses[:, cell])]
        if not violating:
            return False, self._find_fullest(position, losses[:, cells])
        sizes = {
            order.index(cell): self._display_one(add_saturating(losses[:, cell], cost), position)
            for cell in violating
        }
        return True, min(sizes, key=lambda at: (-sizes[at], at))

    def _is_exceeded(self, position: int, before: LossArray) -> bool:
        bounds = BoundArrays(self.maximum, self.require_all)[[position]]
        after = add_saturating(before, self.cost[position])
        return not bounds.are_within(after[np.newaxis])[0]

    def _find_fullest(self, position: int, losses: LossArray) -> int:
        """Return the first cell with the largest amount in the certificate that is least used."""
        used = {
            column: (loss[0] - (limit - cost)) / max(limit, 1)
            for column, (loss, limit, cost) in enumerate(
                zip(losses[:-1], self.maximum[position], self.cost[position], strict=False)
            )
            if 0 <= limit < INFINITE
        }
        return int(losses[min(used, key=lambda column: used[column])].argmax()) if used else 0

    def _describe(
        self, position: int, amounts: LossArray, cells: NDArray[np.intp], at: int
    ) -> TightCell:
        before = self._losses(position, amounts)[:, cells[at]]
        after = add_saturating(before, self.cost[position])
        bounds = BoundArrays(self.maximum, self.require_all)[[position]]
        return (
            float(bounds.remaining_share(after[np.newaxis])[0]),
            position,
            self._display_one(before, position),
            self._display_one(after, position),
            int(before[-1]),
            int(after[-1]),
            self._variance(before),
            self._variance(after),
            at,
        )

    def _losses(self, position: int, amounts: LossArray) -> LossArray:
        """Return the losses of a rule, columns × cells; a view."""
        width, place = self.cost.shape[1], int(self.numbers[position])
        return amounts[:, place * width : (place + 1) * width].T

    def _display_one(self, row: LossArray, position: int) -> int:
        rows = np.zeros_like(self.cost)
        rows[position] = row
        return self._display(rows, position)


def _balances(finite: LossArray, infinite: NDArray[np.int32]) -> Balances:
    """Return balances that share these arrays, of a policy without partitions."""
    rules: Any = np.zeros(len(finite), np.intp)
    granularities = RuleGranularities(PartitionSpace(()), (), rules)
    return Balances(granularities, finite, infinite, RuleGrids.empty((), len(finite)))
