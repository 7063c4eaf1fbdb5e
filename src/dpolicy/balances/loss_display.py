"""A loss and a rule → the number that people read: in the notion of the rule's budget, rounded up.

For (ε, δ) budgets it is the least ε whose thresholds would hold, so it passes the budget exactly
where the rule breaks. It is an accounting value: the guarantee is the budget (theory 2.2).
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
    """One number: the least over some columns of the amount there and what is added to it."""

    name: str
    columns: LossArray
    added: LossArray
    format_amount: Callable[[int], float]

    def quanta(self, rows: LossArray) -> LossArray:
        """The figure of each row, in quanta."""
        least: LossArray = (rows[:, self.columns] + self.added).min(axis=1)
        return least


@dataclass(frozen=True, slots=True)
class LossFormatter:
    """How the losses of a rule are told: one figure, or one for each order that is bounded."""

    figures: tuple[DisplayedNumber, ...]

    def __call__(self, row: LossArray) -> DisplayedLoss:
        """A loss in numbers; stated leaks are told wherever there are any."""
        return self.format_all(row[np.newaxis])[0]

    def format_all(self, rows: LossArray) -> list[DisplayedLoss]:
        """Losses in numbers."""
        told: list[dict[str, float | None]] = [{} for _ in rows]
        for figure in self.figures:
            for said, quanta in zip(told, figure.quanta(rows).tolist(), strict=True):
                said[figure.name] = None if quanta >= INFINITE else figure.format_amount(quanta)
        for said, leaks in zip(told, rows[:, -1].tolist(), strict=True):
            if 0 < leaks < DELTA_QUANTA:
                said["delta"] = leaks / DELTA_QUANTA
        return list(told)

    def ranking_keys(self, rows: LossArray) -> LossArray:
        """What rows are ranked by."""
        return self.figures[0].quanta(rows)


def loss_formatter(
    budget: Budget, profile: Profile, orders: Sequence[Fraction], certificates: Certificates
) -> LossFormatter:
    """How losses are shown beside a budget."""

    def figure(
        name: str,
        steps: Sequence[tuple[Certificate, int]],
        format_amount: Callable[[int], float] = _decimal,
    ) -> DisplayedNumber:
        columns = [certificates.index(certificate) for certificate, _ in steps]
        return DisplayedNumber(
            name, np.array(columns), np.array([more for _, more in steps]), format_amount
        )

    match budget:
        case EpsilonDelta():
            return LossFormatter((figure("epsilon", conversion_amounts(budget, profile, orders)),))
        case Gdp():
            return LossFormatter((figure("mu", [(MU_SQUARED, 0)], _root),))
        case Renyi(orders=stated):
            names = [(f"renyi {format_order(order)}", renyi(order)) for order, _ in stated]
            return LossFormatter(tuple(figure(name, [(at, 0)]) for name, at in names))
        case Zcdp() | Unlimited():
            return LossFormatter((figure("rho", [(RHO, 0)]),))


def _decimal(quanta: int) -> float:
    """Quanta as the float that prints no less; below 15 digits that is the nearest one."""
    if quanta < 10**15:
        return quanta / QUANTA_PER_UNIT
    return round_up_to_printed_float(Fraction(quanta, QUANTA_PER_UNIT))


def _root(quanta: int) -> float:
    return sqrt_rounded_up(Fraction(quanta, QUANTA_PER_UNIT))


def certificates_for_display(
    budget: Budget, profile: Profile, orders: Sequence[Fraction]
) -> tuple[Certificate, ...]:
    """The certificates that a readout needs, also those at which the budget is no use."""
    match budget:
        case EpsilonDelta():
            return tuple(
                certificate for certificate, _ in conversion_amounts(budget, profile, orders)
            )
        case Gdp():
            return (MU_SQUARED,)
        case Renyi(orders=stated):
            return tuple(renyi(order) for order, _ in stated)
        case Zcdp() | Unlimited():
            return (RHO,)
