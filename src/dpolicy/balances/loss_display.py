"""Displayed value of a loss, in the notion of the rule's budget and rounded up.

For an (ε, δ) budget it is the smallest ε whose thresholds the loss satisfies, so it is above the
budget exactly when the rule is exceeded. It is an accounting value; the guarantee is the budget
(theory 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp
from dpolicy.privacy.certificates import (
    MU_SQUARED,
    QUANTA_PER_UNIT,
    RHO,
    Certificate,
    format_order,
    renyi,
)
from dpolicy.privacy.cost_report import round_up_to_printed_float, sqrt_rounded_up
from dpolicy.privacy.loss import INFINITE, Certificates
from dpolicy.privacy.loss_arrays import DELTA_QUANTA, LossArray
from dpolicy.privacy.thresholds import Profile, conversion_amounts
from dpolicy.releases.decision import DisplayedLoss


@dataclass(frozen=True, slots=True, eq=False)
class DisplayedNumber:
    """One number of a displayed loss: the minimum over `columns` of amount + `added`, in quanta."""

    name: str
    columns: LossArray
    added: LossArray
    format_amount: Callable[[int], float]

    def quanta(self, rows: LossArray) -> LossArray:
        """Return the number for each row, in quanta."""
        minimum: LossArray = (rows[:, self.columns] + self.added).min(axis=1)
        return minimum


@dataclass(frozen=True, slots=True)
class LossFormatter:
    """Formatter for losses of a rule: one number, or one per bounded Rényi order."""

    figures: tuple[DisplayedNumber, ...]

    def __call__(self, row: LossArray) -> DisplayedLoss:
        """Return one displayed loss; it has the key `delta` if the δ-side is neither 0 nor 1."""
        return self.format_all(row[np.newaxis])[0]

    def format_all(self, rows: LossArray) -> list[DisplayedLoss]:
        """Return the displayed loss of each row."""
        displayed: list[dict[str, float | None]] = [{} for _ in rows]
        for figure in self.figures:
            for loss, quanta in zip(displayed, figure.quanta(rows).tolist(), strict=True):
                loss[figure.name] = None if quanta >= INFINITE else figure.format_amount(quanta)
        for loss, delta in zip(displayed, rows[:, -1].tolist(), strict=True):
            if 0 < delta < DELTA_QUANTA:
                loss["delta"] = delta / DELTA_QUANTA
        return list(displayed)

    def ranking_keys(self, rows: LossArray) -> LossArray:
        """Return the first number of each row, in quanta, to rank losses by size."""
        return self.figures[0].quanta(rows)


def loss_formatter(
    budget: Budget,
    profile: Profile,
    orders: Sequence[Fraction],
    certificates: Certificates,
    leaks: Fraction | None = None,
) -> LossFormatter:
    """Return the formatter for losses that are compared with a budget."""

    def figure(
        name: str,
        steps: Sequence[tuple[Certificate, int]],
        format_amount: Callable[[int], float] = _decimal_rounded_up,
    ) -> DisplayedNumber:
        columns = [certificates.index(certificate) for certificate, _ in steps]
        return DisplayedNumber(
            name, np.array(columns), np.array([added for _, added in steps]), format_amount
        )

    match budget:
        case EpsilonDelta():
            amounts = conversion_amounts(budget, profile, orders, leaks)
            return LossFormatter((figure("epsilon", amounts),))
        case Gdp():
            return LossFormatter((figure("mu", [(MU_SQUARED, 0)], _root_rounded_up),))
        case Renyi(orders=stated):
            figures = [
                figure(f"renyi {format_order(order)}", [(renyi(order), 0)]) for order, _ in stated
            ]
            return LossFormatter(tuple(figures))
        case Zcdp() | Unlimited():
            return LossFormatter((figure("rho", [(RHO, 0)]),))


def _decimal_rounded_up(quanta: int) -> float:
    """Return a float whose printed value is not below the exact one.

    With at most 15 digits the nearest float prints exactly.
    """
    if quanta < 10**15:
        return quanta / QUANTA_PER_UNIT
    return round_up_to_printed_float(Fraction(quanta, QUANTA_PER_UNIT))


def _root_rounded_up(quanta: int) -> float:
    return sqrt_rounded_up(Fraction(quanta, QUANTA_PER_UNIT))


def certificates_for_display(
    budget: Budget, profile: Profile, orders: Sequence[Fraction], leaks: Fraction | None = None
) -> tuple[Certificate, ...]:
    """Return the certificates that the displayed loss needs.

    They include certificates without a threshold in the budget bound.
    """
    match budget:
        case EpsilonDelta():
            amounts = conversion_amounts(budget, profile, orders, leaks)
            return tuple(certificate for certificate, _ in amounts)
        case Gdp():
            return (MU_SQUARED,)
        case Renyi(orders=stated):
            return tuple(renyi(order) for order, _ in stated)
        case Zcdp() | Unlimited():
            return (RHO,)
