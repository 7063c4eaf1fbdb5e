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
from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Point
from dpolicy.service.dashboard.views.rule_status_row import used_share_of_budget

#: Number of complete months whose average charge the estimate extrapolates.
ESTIMATE_MONTHS = 6
#: Largest number of days that the estimate looks ahead: ten years.
MAX_ESTIMATE_DAYS = 3650


@dataclass(frozen=True, slots=True)
class MonthlySpending:
    """Spent amount at the end of a month, also as a share of the budget.

    `releases` counts the releases of this month only. `spent` is None if it is infinite, `share` if
    the budget is unlimited.
    """

    month: date
    spent: float | None
    share: float | None
    releases: int

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "month": f"{self.month:%Y-%m}",
            "spent": self.spent,
            "share": self.share,
            "releases": self.releases,
        }


@dataclass(frozen=True, slots=True)
class Burndown:
    """Use of a rule by month, and the estimated day on which it is exhausted.

    `exhaustion_date` is None if the day is more than `MAX_ESTIMATE_DAYS` ahead, or if there is no
    estimate; in the second case `estimate_months` is 0.
    """

    months: tuple[MonthlySpending, ...]
    exhaustion_date: date | None
    estimate_months: int

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "months": [month.as_json() for month in self.months],
            "exhausted": self.exhaustion_date.isoformat() if self.exhaustion_date else None,
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
    exhaustion_date, estimate_months = None, 0
    if section.granularities.for_rule(number).period is None:
        exhaustion_date, estimate_months = _estimate_exhaustion(
            section, number, months, spent, today
        )
    spending = _monthly_spending(section, number, months, spent, counts)
    return Burndown(spending, exhaustion_date, estimate_months)


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
    amounts = [next(iter(loss.values())) for loss in formatter.format_all(totals)]
    budget = section.compiled.rules[number].budget
    shares = used_share_of_budget(budget, formatter, totals).tolist()
    return tuple(
        MonthlySpending(month, amount, None if np.isnan(share) else share, count)
        for month, amount, share, count in zip(months, amounts, shares, counts, strict=True)
    )


def _estimate_exhaustion(
    section: EnforcedSection, number: int, months: Sequence[date], spent: LossArray, today: date
) -> tuple[date | None, int]:
    """Return the first day on which the rule would be exceeded, and the number of months used."""
    complete = [index for index, month in enumerate(months) if _next_month(month) <= today]
    complete = complete[-ESTIMATE_MONTHS:]
    if not complete:
        return None, 0
    days = (_next_month(months[complete[-1]]) - months[complete[0]]).days
    daily_charge = spent[complete].sum(axis=0) / days
    total = spent.sum(axis=0)
    bounds = section.bounds_for(np.array([number]))

    def is_satisfied_after(days_ahead: int) -> bool:
        loss = _round_up(total + daily_charge * days_ahead)
        return bool(bounds.are_within(loss[np.newaxis])[0])

    if is_satisfied_after(MAX_ESTIMATE_DAYS):
        return None, len(complete)
    satisfied, exceeded = -1, MAX_ESTIMATE_DAYS
    while exceeded - satisfied > 1:
        middle = (satisfied + exceeded) // 2
        if is_satisfied_after(middle):
            satisfied = middle
        else:
            exceeded = middle
    return today + timedelta(days=exceeded), len(complete)


def _round_up(amounts: LossArray) -> LossArray:
    """Round up to whole quanta, at most `INFINITE`."""
    quanta: LossArray = np.minimum(np.ceil(amounts), float(INFINITE)).astype(np.int64)
    return quanta
