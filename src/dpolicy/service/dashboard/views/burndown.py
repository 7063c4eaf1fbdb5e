"""The releases that a rule was charged for → what was spent by when, and when the rest is gone.

Only releases in the rule's worst place count, each in the month in which the ledger recorded it.
The estimate goes on at the pace of the last six whole months (all of them, if there are fewer): so
many losses a day are added, in every certificate, until the rule would no longer hold. It says
nothing about what people will ask for; a rule that renews with time has none.
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

#: The pace is that of so many whole months.
ESTIMATE_MONTHS = 6
#: Nobody plans further ahead, in days.
MAX_ESTIMATE_DAYS = 3650


@dataclass(frozen=True, slots=True)
class MonthlySpending:
    """What was spent up to the end of a month, as a number and as a share of the budget."""

    month: date
    spent: float | None
    share: float | None
    releases: int

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "month": f"{self.month:%Y-%m}",
            "spent": self.spent,
            "share": self.share,
            "releases": self.releases,
        }


@dataclass(frozen=True, slots=True)
class Burndown:
    """How a rule was used up month by month, and the day on which nothing is left.

    `exhausted` is None if that is further away than anybody plans, or if there is no pace yet;
    `months_of_pace` says which.
    """

    months: tuple[MonthlySpending, ...]
    exhausted: date | None
    months_of_pace: int

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "months": [month.as_json() for month in self.months],
            "exhausted": self.exhausted.isoformat() if self.exhausted else None,
            "estimate": {"months-of-pace": self.months_of_pace, "horizon-days": MAX_ESTIMATE_DAYS},
        }


def rule_burndown(
    state: LedgerState, section: EnforcedSection, number: int, at: Point | None, today: date
) -> Burndown:
    """How a rule was used up at a place."""
    by_month: dict[int, tuple[LossArray, int]] = {}
    for content, row in state.groups_charged_to_rule(number, at):
        before, releases = by_month.get(content.month, (np.zeros(len(row)), 0))
        by_month[content.month] = (
            before + row.astype(float) * content.count,
            releases + content.count,
        )
    if not by_month:
        return Burndown((), None, 0)
    ends = _months(min(by_month), today)
    none = np.zeros(section.bounds.maximum.shape[1])
    spent = np.array([by_month.get(month.toordinal(), (none, 0))[0] for month in ends])
    counts = [by_month.get(month.toordinal(), (none, 0))[1] for month in ends]
    exhausted, paced = None, 0
    if section.granularities.frames[section.granularities.frame_of[number]].period is None:
        exhausted, paced = _exhausted(section, number, ends, spent, today)
    return Burndown(_told(section, number, ends, spent, counts), exhausted, paced)


def _months(first: int, today: date) -> list[date]:
    """The first days of all months from one up to now."""
    found = [date.fromordinal(first)]
    while (after := _next(found[-1])) <= today:
        found.append(after)
    return found


def _next(month: date) -> date:
    return (month + timedelta(days=32)).replace(day=1)


def _told(
    section: EnforcedSection,
    number: int,
    ends: Sequence[date],
    spent: LossArray,
    counts: Sequence[int],
) -> tuple[MonthlySpending, ...]:
    """The running total at the end of each month, in the notion of the rule."""
    rows = _as_rows(np.cumsum(spent, axis=0))
    readout = section.formatter_for(number)
    told = [next(iter(shown.values())) for shown in readout.format_all(rows)]
    budget = section.compiled.rules[number].budget
    shares = used_share_of_budget(budget, readout, rows).tolist()
    return tuple(
        MonthlySpending(month, amount, None if np.isnan(share) else share, count)
        for month, amount, share, count in zip(ends, told, shares, counts, strict=True)
    )


def _exhausted(
    section: EnforcedSection, number: int, ends: Sequence[date], spent: LossArray, today: date
) -> tuple[date | None, int]:
    """The first day on which a rule no longer holds, if it is charged on as in the last months."""
    whole = [n for n, month in enumerate(ends) if _next(month) <= today][-ESTIMATE_MONTHS:]
    if not whole:
        return None, 0
    days = (_next(ends[whole[-1]]) - ends[whole[0]]).days
    pace = spent[whole].sum(axis=0) / days
    total = spent.sum(axis=0)
    gate = section.bounds_for(np.array([number]))

    def holds(after: int) -> bool:
        return bool(gate.are_within(_as_rows(total + pace * after)[np.newaxis])[0])

    if holds(MAX_ESTIMATE_DAYS):
        return None, len(whole)
    low, high = -1, MAX_ESTIMATE_DAYS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return today + timedelta(days=high), len(whole)


def _as_rows(amounts: LossArray) -> LossArray:
    """Whole quanta, none beyond infinity."""
    whole: LossArray = np.minimum(np.ceil(amounts), float(INFINITE)).astype(np.int64)
    return whole
