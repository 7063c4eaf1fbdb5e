"""Displayed value of a loss, in the notion of the rule's budget and rounded up.

A loss has two sides, and each has its own limit. For an (ε, δ) budget the first is the smallest ε
whose thresholds the loss satisfies, so it is above the budget exactly when no certificate holds.
The second is the sum of the stated δ; its limit is the part of δ that the policy keeps for stated
leaks. Other notions keep none. The sides are accounting values; the guarantee is the budget
(theory 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import floor

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.kernel.kernel import BudgetEpsilon, EpsilonCurve
from dpolicy.privacy.budget import (
    Budget,
    EpsilonDelta,
    Gdp,
    Renyi,
    Unlimited,
    Zcdp,
    budget_limits,
)
from dpolicy.privacy.certificates import (
    MU_SQUARED,
    QUANTA_PER_UNIT,
    RHO,
    Certificate,
    format_order,
    quanta_down,
    renyi,
)
from dpolicy.privacy.conversion import log_fraction
from dpolicy.privacy.cost_report import (
    round_down_to_printed_float,
    round_up_to_printed_float,
    sqrt_rounded_up,
)
from dpolicy.privacy.loss import INFINITE, Certificates
from dpolicy.privacy.loss_arrays import DELTA_QUANTA, LossArray
from dpolicy.privacy.reserves.ladder import LADDER, reserve_quanta
from dpolicy.privacy.reserves.reserve_limits import variance_within
from dpolicy.privacy.shares.chains import DeltaShares
from dpolicy.privacy.thresholds import (
    Profile,
    bound_for_budget,
    conversion_amounts,
    reserves_mass,
)
from dpolicy.releases.decision import DisplayedLoss

#: Quanta below this have at most 15 digits, so that the nearest float prints them exactly.
MAX_EXACT_QUANTA = 10**15


@dataclass(frozen=True, slots=True, eq=False)
class ReserveColumns:
    """The ε of the reserves of an (ε, δ) budget, which is not a sum with a constant.

    The smallest amount + reserve over `columns` is the variance that the certificates need;
    `epsilon` has the ε of a variance.
    """

    columns: LossArray
    reserves: LossArray
    epsilon: BudgetEpsilon

    def lower(self, displayed: LossArray, rows: LossArray) -> LossArray:
        """Return the smaller of a displayed ε and that of the reserves for each row, in quanta."""
        amounts = rows[:, self.columns]
        variances = np.where(amounts >= INFINITE, INFINITE, amounts + self.reserves).min(axis=1)
        pairs = zip(displayed.tolist(), variances.tolist(), strict=True)
        return np.array([self.epsilon.lower(*pair) for pair in pairs], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class DisplayedNumber:
    """One number of a displayed loss, in quanta: the minimum over `columns` of amount + `added`.

    It is at least 0: `added` may be negative. With `reserves`, it is at most their ε.
    """

    name: str
    columns: LossArray
    added: LossArray
    format_amount: Callable[[int], float]
    reserves: ReserveColumns | None = None

    def quanta(self, rows: LossArray) -> LossArray:
        """Return the number for each row, in quanta."""
        amounts = rows[:, self.columns]
        sums = np.where(amounts >= INFINITE, INFINITE, amounts + self.added)
        minimum: LossArray = np.maximum(sums.min(axis=1), 0)
        return self.reserves.lower(minimum, rows) if self.reserves else minimum


@dataclass(frozen=True, slots=True)
class LossFormatter:
    """Formatter for losses of a rule: one number, or one per bounded Rényi order, and stated δ.

    `delta_limit` is the limit of the sum of stated δ, in quanta; `INFINITE` without a limit.
    """

    budget: Budget
    figures: tuple[DisplayedNumber, ...]
    delta_limit: int

    def __call__(self, row: LossArray) -> DisplayedLoss:
        """Return one displayed loss.

        Losses of (ε, δ) budgets always have the key `delta`, others only if it is above 0 and below
        1. An unbounded loss has no finite number, and δ 1.
        """
        return self.format_all(row[np.newaxis])[0]

    def format_all(self, rows: LossArray) -> list[DisplayedLoss]:
        """Return the displayed loss of each row."""
        displayed: list[dict[str, float | None]] = [{} for _ in rows]
        for figure in self.figures:
            for loss, quanta in zip(displayed, figure.quanta(rows).tolist(), strict=True):
                loss[figure.name] = None if quanta >= INFINITE else figure.format_amount(quanta)
        for loss, delta in zip(displayed, rows[:, -1].tolist(), strict=True):
            if isinstance(self.budget, EpsilonDelta) or 0 < delta < DELTA_QUANTA:
                loss["delta"] = delta_rounded_up(delta)
        return list(displayed)

    @property
    def displayed_delta_limit(self) -> float | None:
        """The limit of the sum of stated δ, rounded down; None without a limit."""
        if self.delta_limit >= INFINITE:
            return None
        return round_down_to_printed_float(Fraction(self.delta_limit, DELTA_QUANTA))

    def ranking_keys(self, rows: LossArray) -> LossArray:
        """Return the first number of each row, in quanta, to rank losses by size."""
        return self.figures[0].quanta(rows)

    def used_shares(self, rows: LossArray) -> NDArray[np.float64]:
        """Return the share of the budget that each row uses: the larger of its two sides."""
        return np.asarray(np.fmax(self.loss_shares(rows), self.delta_shares(rows)), np.float64)

    def loss_shares(self, rows: LossArray) -> NDArray[np.float64]:
        """Return the used share of the budget without its δ-side; for Rényi, the largest share.

        The share is NaN for an unlimited budget. For a budget of 0 it is 0 or infinite.
        """
        limits = budget_limits(self.budget)
        if not limits:
            return np.full(len(rows), np.nan)
        spent = {f.name: _to_units(f.quanta(rows)) for f in self.figures}
        if isinstance(self.budget, Gdp):
            spent = {name: np.sqrt(amounts) for name, amounts in spent.items()}
        shares = [_shares(spent[name], float(limit)) for name, limit in limits.items()]
        return np.asarray(np.maximum.reduce(shares), dtype=np.float64)

    def delta_shares(self, rows: LossArray) -> NDArray[np.float64]:
        """Return the used share of the limit of stated δ; NaN without a limit.

        It is infinite if a δ is stated and the limit is 0. An unbounded loss states no δ.
        """
        if self.delta_limit >= INFINITE:
            return np.full(len(rows), np.nan)
        deltas = np.where(is_unbounded(rows), 0, rows[:, -1]).astype(float)
        return _shares(deltas, float(self.delta_limit))


@dataclass(frozen=True, slots=True, eq=False)
class DisplayColumns:
    """The first displayed number of each budget as arrays, for the kernel.

    `added` and `is_displayed` have a row per budget and a column per certificate and δ.
    `has_one_number` is false for a budget whose losses have several numbers. `reserves` has the
    reserve of each column, and −1 for a column that is no reserve.
    """

    added: LossArray
    is_displayed: NDArray[np.bool_]
    has_one_number: NDArray[np.bool_]
    reserves: LossArray


def build_display_columns(formatters: Sequence[LossFormatter], width: int) -> DisplayColumns:
    """Return the columns that formatters display; `width` is the number of columns of a row."""
    added = np.zeros((len(formatters), width), np.int64)
    is_displayed = np.zeros((len(formatters), width), np.bool_)
    reserves = np.full(width, -1, np.int64)
    for number, formatter in enumerate(formatters):
        figure = formatter.figures[0]
        added[number, figure.columns] = figure.added
        is_displayed[number, figure.columns] = True
        if figure.reserves is not None:
            reserves[figure.reserves.columns] = figure.reserves.reserves
    has_one_number = np.array([len(f.figures) == 1 for f in formatters], np.bool_)
    return DisplayColumns(added, is_displayed, has_one_number, reserves)


def is_unbounded(rows: LossArray) -> NDArray[np.bool_]:
    """Return for each row whether it is infinite in every certificate, so that δ is 1."""
    smallest: LossArray = rows[:, :-1].min(axis=1)
    return (smallest >= INFINITE) & (rows[:, -1] >= DELTA_QUANTA)


def _to_units(quanta: LossArray) -> NDArray[np.float64]:
    """Return amounts in units; an infinite amount is `inf`."""
    return np.asarray(np.where(quanta >= INFINITE, np.inf, quanta / QUANTA_PER_UNIT), np.float64)


def _shares(amounts: NDArray[np.float64], limit: float) -> NDArray[np.float64]:
    nothing = np.where(amounts > 0, np.inf, 0.0)
    return np.asarray(np.divide(amounts, limit, out=nothing, where=limit > 0), np.float64)


def loss_formatter(
    budget: Budget,
    profile: Profile,
    orders: Sequence[Fraction],
    certificates: Certificates,
    leaks: Fraction | None = None,
    shares: DeltaShares | None = None,
) -> LossFormatter:
    """Return the formatter for losses that are compared with a budget."""
    delta_side = bound_for_budget(budget, profile, orders, leaks, shares).delta
    delta_limit = INFINITE if delta_side is None else floor(delta_side * DELTA_QUANTA)

    def formatter(*figures: DisplayedNumber) -> LossFormatter:
        return LossFormatter(budget, figures, delta_limit)

    def figure(
        name: str,
        steps: Sequence[tuple[Certificate, int]],
        format_amount: Callable[[int], float] = decimal_rounded_up,
        reserves: ReserveColumns | None = None,
    ) -> DisplayedNumber:
        columns = np.array([certificates.index(certificate) for certificate, _ in steps])
        added = np.array([added for _, added in steps])
        return DisplayedNumber(name, columns, added, format_amount, reserves)

    match budget:
        case EpsilonDelta():
            amounts = conversion_amounts(budget, profile, orders, leaks, shares)
            mass = reserves_mass(budget, profile, leaks, shares)
            reserves = _reserve_columns(budget, mass, certificates)
            return formatter(figure("epsilon", amounts, reserves=reserves))
        case Gdp():
            return formatter(figure("mu", [(MU_SQUARED, 0)], _root_rounded_up))
        case Renyi(orders=stated):
            figures = [
                figure(f"renyi {format_order(order)}", [(renyi(order), 0)]) for order, _ in stated
            ]
            return formatter(*figures)
        case Zcdp() | Unlimited():
            return formatter(figure("rho", [(RHO, 0)]))


def _reserve_columns(
    budget: EpsilonDelta, mass: Fraction, certificates: Certificates
) -> ReserveColumns | None:
    """Return the columns of the reserves; None if no part of δ is theirs."""
    if not mass:
        return None
    return ReserveColumns(
        np.array([certificates.index(certificate) for certificate in LADDER]),
        np.array([reserve_quanta(certificate) for certificate in LADDER]),
        BudgetEpsilon(
            _epsilon_curve(mass), variance_within(budget.epsilon, mass), quanta_down(budget.epsilon)
        ),
    )


@lru_cache(maxsize=1024)
def _epsilon_curve(mass: Fraction) -> EpsilonCurve:
    """Return the curve of a part of δ; budgets with the same part share it."""
    return EpsilonCurve(log_fraction(mass))


def decimal_rounded_up(quanta: int) -> float:
    """Return a float whose printed value is not below the exact one."""
    if quanta < MAX_EXACT_QUANTA:
        return quanta / QUANTA_PER_UNIT
    return round_up_to_printed_float(Fraction(quanta, QUANTA_PER_UNIT))


@lru_cache(maxsize=4096)
def delta_rounded_up(quanta: int) -> float:
    """Return the sum of stated δ, at most 1: a larger δ allows no more."""
    return round_up_to_printed_float(Fraction(min(quanta, DELTA_QUANTA), DELTA_QUANTA))


def _root_rounded_up(quanta: int) -> float:
    return sqrt_rounded_up(Fraction(quanta, QUANTA_PER_UNIT))


def certificates_for_display(
    budget: Budget,
    profile: Profile,
    orders: Sequence[Fraction],
    leaks: Fraction | None = None,
    shares: DeltaShares | None = None,
) -> tuple[Certificate, ...]:
    """Return the certificates that the displayed loss needs.

    They include certificates without a threshold in the budget bound.
    """
    match budget:
        case EpsilonDelta():
            amounts = conversion_amounts(budget, profile, orders, leaks, shares)
            ladder = LADDER if reserves_mass(budget, profile, leaks, shares) else ()
            return (*(certificate for certificate, _ in amounts), *ladder)
        case Gdp():
            return (MU_SQUARED,)
        case Renyi(orders=stated):
            return tuple(renyi(order) for order, _ in stated)
        case Zcdp() | Unlimited():
            return (RHO,)
