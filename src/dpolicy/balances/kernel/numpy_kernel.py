"""The kernel in NumPy: gates, tightest rules, exceeded rules and charge of one release.

`RuleRows` is for rules without segments, `GridRows` for rules in one grid. The module is the
fallback of `compiled_kernel.pyx` and the standard against which tests compare it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray, add_saturating
from dpolicy.privacy.reserves.reserve_limits import smallest_epsilon

#: Number of tightest rules that `RuleRows.decide` returns.
MAX_TIGHTEST = 3

#: Version of the behaviour. `kernel.py` uses a compiled kernel of the same version only.
KERNEL_VERSION = 3

#: Remaining share, position, displayed quanta before and after, quanta of δ before and after, and
#: the variance that the reserves need before and after.
TightRule = tuple[float, int, int, int, int, int, int, int]

#: The same, and the position of the rule's tightest cell.
TightCell = tuple[float, int, int, int, int, int, int, int, int]

_MAX_COUNT = np.iinfo(np.int32).max
_MAX_AMOUNT = np.iinfo(np.int64).max


class EpsilonCurve:
    """The smallest ε of each variance under one part of δ (theory/reserves, 1)."""

    __slots__ = ("_log_mass",)

    def __init__(self, log_mass: float) -> None:
        self._log_mass = log_mass

    def epsilon(self, variance: int) -> int:
        """Return the smallest ε that admits a variance, in quanta, rounded up to steps."""
        return smallest_epsilon(variance, self._log_mass)


class BudgetEpsilon:
    """The displayed ε of reserves beside a budget.

    It is at most the budget exactly for variances up to `limit`, the variance that the budget
    admits: floats must not decide that.
    """

    __slots__ = ("_budget", "_curve", "_limit")

    def __init__(self, curve: EpsilonCurve, limit: int, budget: int) -> None:
        self._curve, self._limit, self._budget = curve, limit, budget

    def lower(self, displayed: int, variance: int) -> int:
        """Return the smaller of a displayed ε and the ε of a variance, in quanta."""
        epsilon = self._curve.epsilon(variance)
        if variance <= self._limit:
            return min(displayed, epsilon, self._budget)
        return min(displayed, max(epsilon, self._budget + 1))

    def lower_both(self, rule: TightRule | TightCell) -> tuple[int, int]:
        """Return the displayed ε of a rule before and after the release, in quanta."""
        return self.lower(rule[2], rule[6]), self.lower(rule[3], rule[7])


class _Rows:
    """A cost, limits and displayed columns: a row per rule, a column per certificate, δ last."""

    __slots__ = (
        "_added",
        "_cost",
        "_divisor",
        "_is_displayed",
        "_is_infinite",
        "_is_unlimited",
        "_maximum",
        "_numbers",
        "_positions",
        "_require_all",
        "_reserve_columns",
        "_reserves",
    )

    def __init__(
        self,
        numbers: NDArray[np.intp],
        cost: LossArray,
        maximum: LossArray,
        require_all: NDArray[np.bool_],
        added: LossArray,
        is_displayed: NDArray[np.bool_],
        reserves: LossArray,
        positions: NDArray[np.intp] | None = None,
    ) -> None:
        """Copy the arrays. The results name a rule by its row, or by its number in `positions`.

        `reserves` has the reserve of each column, and −1 for a column that is no reserve.

        Raise `ValueError` for a wrong type, dimension or memory layout, and `InvariantBroken` for
        a wrong shape, rule number, cost or displayed column.
        """
        _check_layout(numbers, np.intp, 1)
        for amounts in (cost, maximum, added):
            _check_layout(amounts, np.int64, 2)
        _check_layout(require_all, np.bool_, 1)
        _check_layout(is_displayed, np.bool_, 2)
        _check_layout(reserves, np.int64, 1)
        _check_content(numbers, cost, maximum, require_all, added, is_displayed)
        if len(reserves) != cost.shape[1]:
            raise InvariantBroken(f"{len(reserves)} reserves for {cost.shape[1]} columns")
        if positions is None:
            positions = np.arange(len(numbers))
        _check_layout(positions, np.intp, 1)
        if len(positions) != len(numbers):
            raise InvariantBroken(f"{len(numbers)} rules have {len(positions)} positions")
        self._numbers, self._positions = numbers.copy(), positions.copy()
        self._cost: LossArray = np.minimum(cost, INFINITE)
        self._is_infinite: NDArray[np.bool_] = cost >= INFINITE
        self._maximum = maximum.copy()
        self._is_unlimited: NDArray[np.bool_] = maximum == INFINITE
        self._divisor = np.maximum(maximum, 1).astype(np.float64)
        self._require_all = require_all.copy()
        self._added = added.copy()
        self._is_displayed = is_displayed.copy()
        self._reserve_columns = np.flatnonzero(reserves >= 0)
        self._reserves: LossArray = reserves[self._reserve_columns]

    def _remaining_shares(self, rows: LossArray) -> NDArray[np.float64]:
        """Return `BoundArrays.remaining_share`; it is negative exactly if a rule is exceeded."""
        shares = 1 - rows / self._divisor
        shares[rows > self._maximum] = -1
        shares[self._is_unlimited] = 2
        sides = shares[:, :-1]
        certified = np.where(self._require_all, sides.min(axis=1), sides.max(axis=1))
        smaller: NDArray[np.float64] = np.minimum(certified, shares[:, -1])
        return smaller

    def _describe(
        self,
        positions: NDArray[np.intp],
        shares: NDArray[np.float64],
        before: LossArray,
        after: LossArray,
    ) -> tuple[NDArray[Any], ...]:
        """Return the columns of a `TightRule` for some of the rows."""
        rows = np.stack([before[positions], after[positions]])
        displayed = self._displayed_quanta(rows, positions)
        variances = self._needed_variances(rows)
        return shares[positions], self._positions[positions], *displayed, *rows[..., -1], *variances

    def _displayed_quanta(self, amounts: LossArray, positions: NDArray[np.intp]) -> LossArray:
        """Return the displayed number of rows for these positions, as `DisplayedNumber`."""
        sums = np.where(amounts >= INFINITE, INFINITE, amounts + self._added[positions])
        sums[:, ~self._is_displayed[positions]] = _MAX_AMOUNT
        quanta: LossArray = np.maximum(sums.min(axis=-1), 0)
        return quanta

    def _needed_variances(self, amounts: LossArray) -> LossArray:
        """Return the smallest amount + reserve of rows; `INFINITE` without reserves."""
        amounts = amounts[..., self._reserve_columns]
        sums = np.where(amounts >= INFINITE, INFINITE, amounts + self._reserves)
        variances: LossArray = sums.min(axis=-1, initial=INFINITE)
        return variances


class RuleRows(_Rows):
    """The rules without segments that a release matches.

    `numbers` are the rules in increasing order. The displayed number of a rule is the minimum of
    amount + `added` over the columns with `is_displayed`. The object keeps copies of the arrays.
    """

    __slots__ = ()

    def decide(self, finite: LossArray, infinite: NDArray[np.int32]) -> list[TightRule] | None:
        """Return the tightest rules after the release; None if it exceeds a rule.

        `finite` and `infinite` are the arrays of `Balances`. Ties are in the order of the rules.
        """
        before, after = self._read_balances(finite, infinite)
        shares = self._remaining_shares(after)
        if shares.min(initial=0) < 0:
            return None
        order = np.argsort(shares, kind="stable")[:MAX_TIGHTEST]
        return _zip_columns(self._describe(order, shares, before, after))

    def find_exceeded(self, finite: LossArray, infinite: NDArray[np.int32]) -> list[TightRule]:
        """Return the rules that the release exceeds, in their order."""
        before, after = self._read_balances(finite, infinite)
        shares = self._remaining_shares(after)
        return _zip_columns(self._describe(np.flatnonzero(shares < 0), shares, before, after))

    def charge(self, finite: LossArray, infinite: NDArray[np.int32]) -> None:
        """Add the cost of the release to the arrays of `Balances`.

        Raise `InvariantBroken`, without a change, if a count of infinite terms would overflow.
        """
        self._check_balances(finite, infinite)
        numbers = self._numbers
        counts = infinite[numbers]
        if (counts[self._is_infinite] == _MAX_COUNT).any():
            raise InvariantBroken("a count of infinite terms is at its maximum")
        if not (finite.flags.writeable and infinite.flags.writeable):
            raise ValueError("the balances are read-only")
        terms = np.where(self._is_infinite, 0, self._cost)
        finite[numbers] = add_saturating(finite[numbers], terms)
        infinite[numbers] = counts + self._is_infinite

    def _read_balances(
        self, finite: LossArray, infinite: NDArray[np.int32]
    ) -> tuple[LossArray, LossArray]:
        """Return the losses before and after the release."""
        self._check_balances(finite, infinite)
        before = finite[self._numbers]
        before[infinite[self._numbers] > 0] = INFINITE
        return before, add_saturating(before, self._cost)

    def _check_balances(self, finite: LossArray, infinite: NDArray[np.int32]) -> None:
        _check_layout(finite, np.int64, 2)
        _check_layout(infinite, np.int32, 2)
        if finite.shape != infinite.shape or finite.shape[1] != self._cost.shape[1]:
            raise InvariantBroken("the balances have another shape than the rows")
        if len(self._numbers) and self._numbers[-1] >= len(finite):
            raise InvariantBroken("the balances have no row for a rule")


class GridRows(_Rows):
    """The rules of one grid that a release matches; `numbers` are their places in the grid.

    The arguments of the methods are the amounts of the grid, cells × columns, and the cells that
    the release charges, in the order of their points.
    """

    __slots__ = ()

    def decide(self, amounts: LossArray, cells: NDArray[np.intp]) -> list[TightCell] | None:
        """Return the tightest rules after the release, each at its fullest cell.

        Return None if the release exceeds a rule. Ties are in the order of the rules.
        """
        before, after = self._read_cells(amounts, cells)
        if not self._are_within(after).all():
            return None
        chosen, rules = self._find_fullest(before), np.arange(len(self._numbers))
        before, after = before[rules, chosen], after[rules, chosen]
        shares = self._remaining_shares(after)
        order = np.argsort(shares, kind="stable")[:MAX_TIGHTEST]
        return _zip_columns((*self._describe(order, shares, before, after), chosen[order]))

    def find_exceeded(self, amounts: LossArray, cells: NDArray[np.intp]) -> list[TightCell]:
        """Return the rules that the release exceeds, each at its cell with the largest loss.

        With reserves, return each rule at each cell in which it is exceeded: which loss is the
        largest depends on the ε of the variances.
        """
        before, after = self._read_cells(amounts, cells)
        is_within = self._are_within(after)
        if len(self._reserves):
            rules, chosen = np.nonzero(~is_within)
            return self._describe_cells(rules, chosen, before, after)
        exceeded, rules = np.flatnonzero(~is_within.all(axis=1)), np.arange(len(self._numbers))
        sizes = self._displayed_quanta(after.transpose(1, 0, 2), rules).T
        sizes[is_within] = -1
        chosen = sizes.argmax(axis=1)
        before, after = before[rules, chosen], after[rules, chosen]
        shares = self._remaining_shares(after)
        return _zip_columns((*self._describe(exceeded, shares, before, after), chosen[exceeded]))

    def _describe_cells(
        self,
        rules: NDArray[np.intp],
        cells: NDArray[np.intp],
        before: LossArray,
        after: LossArray,
    ) -> list[TightCell]:
        """Return exceeded rules at some of their cells."""
        rows = np.stack([before[rules, cells], after[rules, cells]])
        columns = (
            np.full(len(rules), -1.0),
            self._positions[rules],
            *self._displayed_quanta(rows, rules),
            *rows[..., -1],
            *self._needed_variances(rows),
            cells,
        )
        return _zip_columns(columns)

    def charge(self, amounts: LossArray, cells: NDArray[np.intp]) -> None:
        """Add the cost of the release to the amounts of the cells."""
        self._check_cells(amounts, cells)
        if not amounts.flags.writeable:
            raise ValueError("the amounts are read-only")
        width = self._cost.shape[1]
        columns = (self._numbers[:, np.newaxis] * width + np.arange(width)).reshape(-1)
        at = cells[:, np.newaxis], columns
        amounts[at] = add_saturating(amounts[at], self._cost.reshape(-1))

    def _read_cells(
        self, amounts: LossArray, cells: NDArray[np.intp]
    ) -> tuple[LossArray, LossArray]:
        """Return the losses before and after the release, rules × cells × columns."""
        self._check_cells(amounts, cells)
        width = self._cost.shape[1]
        rows = amounts[cells].reshape(len(cells), -1, width)[:, self._numbers]
        before = np.ascontiguousarray(rows.transpose(1, 0, 2))
        return before, add_saturating(before, self._cost[:, np.newaxis])

    def _are_within(self, rows: LossArray) -> NDArray[np.bool_]:
        """Return whether each rule is within its bound in each cell."""
        within = rows <= self._maximum[:, np.newaxis]
        sides, require_all = within[..., :-1], self._require_all[:, np.newaxis]
        certified = np.where(require_all, sides.all(axis=-1), sides.any(axis=-1))
        both: NDArray[np.bool_] = certified & within[..., -1]
        return both

    def _find_fullest(self, spent: LossArray) -> NDArray[np.intp]:
        """Return the first of the fullest cells of each rule, as `tightest_blocks`.

        It has the largest amount in the certificate that is least used in the first cell.
        """
        limits = self._maximum[:, :-1]
        is_offered = (limits >= 0) & (limits < INFINITE)
        used = spent[:, 0, :-1] - (limits - self._cost[:, :-1])
        shares = np.where(is_offered, used / self._divisor[:, :-1], np.inf)
        column = shares.argmin(axis=1)[:, np.newaxis, np.newaxis]
        amounts = np.take_along_axis(spent, column, axis=2)[..., 0]
        amounts[~is_offered.any(axis=1)] = 0
        fullest: NDArray[np.intp] = amounts.argmax(axis=1)
        return fullest

    def _check_cells(self, amounts: LossArray, cells: NDArray[np.intp]) -> None:
        _check_layout(amounts, np.int64, 2)
        _check_layout(cells, np.intp, 1)
        width = self._cost.shape[1]
        if amounts.shape[1] % width:
            raise InvariantBroken("the grid has another number of columns than the rows")
        if len(self._numbers) and (self._numbers[-1] + 1) * width > amounts.shape[1]:
            raise InvariantBroken("the grid has no columns for a rule")
        if not len(cells) or cells.min() < 0 or cells.max() >= len(amounts):
            raise InvariantBroken("the grid has no such cell, or no cell is charged")


def _zip_columns(columns: Sequence[NDArray[Any]]) -> list[Any]:
    """Return a tuple of plain numbers for each row."""
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _check_layout(array: NDArray[Any], kind: type[np.generic], dimensions: int) -> None:
    if array.dtype != np.dtype(kind) or array.ndim != dimensions or not array.flags.c_contiguous:
        raise ValueError(
            f"an array of {array.dtype} in {array.ndim} dimensions instead of a contiguous one "
            f"of {np.dtype(kind)} in {dimensions}"
        )


def _check_content(
    numbers: NDArray[np.intp],
    cost: LossArray,
    maximum: LossArray,
    require_all: NDArray[np.bool_],
    added: LossArray,
    is_displayed: NDArray[np.bool_],
) -> None:
    rules, width = cost.shape
    if width < 2 or len(numbers) != rules or len(require_all) != rules:
        raise InvariantBroken(f"{len(numbers)} rules have a cost of shape {cost.shape}")
    if not maximum.shape == added.shape == is_displayed.shape == cost.shape:
        raise InvariantBroken(f"limits or columns have another shape than {cost.shape}")
    if rules and (numbers[0] < 0 or (np.diff(numbers) <= 0).any()):
        raise InvariantBroken("rule numbers are negative or do not increase")
    if (cost < 0).any():
        raise InvariantBroken("a cost is negative")
    if not is_displayed.any(axis=1).all():
        raise InvariantBroken("a rule displays no column")
