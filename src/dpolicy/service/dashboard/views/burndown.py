"""Burn-down of a rule: its use at the end of each month, and an estimate of its exhaustion.

Only releases at the rule's most used location count, each in the month in which the ledger recorded
it. The estimate extrapolates the average daily charge of the last six complete months, or of all
complete months if there are fewer, in every certificate, until the rule would be exceeded. It
cannot predict future requests. A rule that renews has no estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np

from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.decision import stated_delta
from dpolicy.releases.regions import Point
from dpolicy.service.dashboard.views.rule_status_row import (
    NOTION_SYMBOLS,
    finite_share,
    known_share,
)

#: Number of complete months whose average charge the estimate extrapolates.
ESTIMATE_MONTHS = 6
#: Largest number of days that the estimate looks ahead: ten years.
MAX_ESTIMATE_DAYS = 3650


@dataclass(frozen=True, slots=True)
class MonthlySpending:
    """Spent amount at the end of a month, also as a share of the budget.

    `releases` counts the releases of this month only. `spent` is None if it is infinite, `share` if
    the budget is unlimited. `delta` is the sum of stated δ, and `delta_share` its share of the part
    of δ that is kept for them.
    """

    month: date
    spent: float | None
    share: float | None
    releases: int
    delta: float = 0.0
    delta_share: float | None = None

    @property
    def used_share(self) -> float | None:
        """Return the larger of the two shares; None if the budget is unlimited."""
        shares = [share for share in (self.share, self.delta_share) if share is not None]
        return max(shares, default=None)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "month": f"{self.month:%Y-%m}",
            "spent": self.spent,
            "share": finite_share(self.share),
            "releases": self.releases,
            "delta": self.delta,
            "delta-share": finite_share(self.delta_share),
        }


@dataclass(frozen=True, slots=True)
class Burndown:
    """Use of a rule by month, and the estimated day on which it is exhausted.

    `exhaustion_date` is None if the day is more than `MAX_ESTIMATE_DAYS` ahead, or if there is no
    estimate; in the second case `estimate_months` is 0. `exhausted_quantity` is the quantity that
    the rule would exceed on that day: the notion of its budget, `delta` or `both`.
    """

    months: tuple[MonthlySpending, ...]
    exhaustion_date: date | None
    estimate_months: int
    exhausted_quantity: str | None = None

    @property
    def has_stated_delta(self) -> bool:
        """Return whether a release of some month stated a δ."""
        return any(month.delta for month in self.months)

    @property
    def exhausted_symbol(self) -> str:
        """Return the symbol of the quantity that would be exhausted first; empty if unknown."""
        if self.exhausted_quantity in (None, "both"):
            return ""
        return NOTION_SYMBOLS.get(self.exhausted_quantity or "", "")

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "months": [month.as_json() for month in self.months],
            "exhausted": self.exhaustion_date.isoformat() if self.exhaustion_date else None,
            "exhausted-quantity": self.exhausted_quantity,
            "estimate": {
                "estimate-months": self.estimate_months,
                "horizon-days": MAX_ESTIMATE_DAYS,
            },
        }


def build_burndown(
    state: LedgerState, section: EnforcedSection, number: int, point: Point | None, today: date
) -> Burndown:
    """Build the burn-down of rule `number` at `point`, which is None if all points are equal."""
    by_month: dict[int, tuple[LossArray, int]] = {}
    for group, row in state.groups_charged_to_rule(number, point):
        loss, releases = by_month.get(group.month, (np.zeros(len(row)), 0))
        by_month[group.month] = (loss + row.astype(float) * group.count, releases + group.count)
    if not by_month:
        return Burndown((), None, 0)
    months = _months_until(min(by_month), today)
    nothing = (np.zeros(section.bounds.maximum.shape[1]), 0)
    charges = [by_month.get(month.toordinal(), nothing) for month in months]
    spent = np.array([loss for loss, _ in charges])
    counts = [releases for _, releases in charges]
    spending = _monthly_spending(section, number, months, spent, counts)
    if section.granularities.for_rule(number).period is not None:
        return Burndown(spending, None, 0)
    return Burndown(spending, *_estimate_exhaustion(section, number, months, spent, today))


def _months_until(first: int, today: date) -> list[date]:
    """Return the first days of all months from the ordinal day `first` to the current month."""
    months: list[date] = []
    month = date.fromordinal(first)
    while not months or month <= today:
        months.append(month)
        month = _next_month(month)
    return months


def _next_month(month: date) -> date:
    return (month + timedelta(days=32)).replace(day=1)


def _monthly_spending(
    section: EnforcedSection,
    number: int,
    months: Sequence[date],
    spent: LossArray,
    counts: Sequence[int],
) -> tuple[MonthlySpending, ...]:
    """Return the running total at the end of each month, in the notion of the rule."""
    totals = _round_up(np.cumsum(spent, axis=0))
    formatter = section.formatter_for(number)
    losses = formatter.format_all(totals)
    shares, delta_shares = formatter.loss_shares(totals), formatter.delta_shares(totals)
    return tuple(
        MonthlySpending(
            month,
            next(iter(losses[index].values())),
            known_share(shares[index]),
            counts[index],
            stated_delta(losses[index]),
            known_share(delta_shares[index]),
        )
        for index, month in enumerate(months)
    )


def _estimate_exhaustion(
    section: EnforcedSection, number: int, months: Sequence[date], spent: LossArray, today: date
) -> tuple[date | None, int, str | None]:
    """Return the first day on which the rule would be exceeded, and the number of months used.

    The third value is the quantity that would be exceeded on that day.
    """
    complete = [index for index, month in enumerate(months) if _next_month(month) <= today]
    complete = complete[-ESTIMATE_MONTHS:]
    if not complete:
        return None, 0, None
    days = (_next_month(months[complete[-1]]) - months[complete[0]]).days
    daily_charge = spent[complete].sum(axis=0) / days
    total = spent.sum(axis=0)
    bounds = section.bounds_for(np.array([number]))

    def loss_after(days_ahead: int) -> LossArray:
        return _round_up(total + daily_charge * days_ahead)

    def is_satisfied_after(days_ahead: int) -> bool:
        return bool(bounds.are_within(loss_after(days_ahead)[np.newaxis])[0])

    if is_satisfied_after(MAX_ESTIMATE_DAYS):
        return None, len(complete), None
    satisfied, exceeded = -1, MAX_ESTIMATE_DAYS
    while exceeded - satisfied > 1:
        middle = (satisfied + exceeded) // 2
        if is_satisfied_after(middle):
            satisfied = middle
        else:
            exceeded = middle
    quantity = section.binding_quantity(number, loss_after(exceeded))
    return today + timedelta(days=exceeded), len(complete), quantity


def _round_up(amounts: LossArray) -> LossArray:
    """Round up to whole quanta, at most `INFINITE`."""
    quanta: LossArray = np.minimum(np.ceil(amounts), float(INFINITE)).astype(np.int64)
    return quanta
