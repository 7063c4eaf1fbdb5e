"""Cost of a daily release of ρ = 0.015 for a user-day and a user-month, in four cases.

Run `python examples/wikimedia/show.py`.
"""

from __future__ import annotations

from datetime import date
from fractions import Fraction

from dpolicy.privacy.conversion import zcdp_to_epsilon
from dpolicy.privacy.cost_report import report_costs
from dpolicy.privacy.mechanisms.gaussian import Gaussian
from dpolicy.privacy.units.group_privacy import GroupContext, no_covers
from dpolicy.privacy.units.privacy_units import (
    NeighbouringRelation,
    PrivacyUnit,
    TouchedDays,
    parse_period,
    touched_days,
)

DELTA = Fraction("1e-6")
DAY = PrivacyUnit("user-day", "user", parse_period("day"), NeighbouringRelation.CHANGE)
MONTH = PrivacyUnit("user-month", "user", parse_period("month"), NeighbouringRelation.CHANGE)
#: σ² = Δ²/(2ρ) with Δ = 10 visits a day and ρ = 0.015; rounded up, ρ stays within 0.015.
SIGMA = Fraction("57.7351")
JANUARY = [date(2026, 1, day) for day in range(1, 32)]


def rho(days: TouchedDays | None, monthly: int | None = None) -> dict[str, Fraction]:
    """Return ρ of one release for both units; `monthly` bounds the visits of a month."""
    context = GroupContext((DAY, MONTH), additive=False, touched=days, covers=no_covers)
    daily = Gaussian(SIGMA, Fraction(10))
    also = {} if monthly is None else {"user-month": Gaussian(SIGMA, Fraction(monthly))}
    costs = report_costs(daily, 0, also, NeighbouringRelation.CHANGE, context, ())
    rho_by_unit = {}
    for unit, cost in zip(context.units, costs, strict=True):
        if cost.rho is None:
            raise ValueError(f"{unit.name} has no ρ")
        rho_by_unit[unit.name] = cost.rho
    return rho_by_unit


def rows() -> list[tuple[str, Fraction, str, str]]:
    """Return description, ρ, ρ in the paper and assumption of each case."""
    daily = [rho(touched_days((day, day))) for day in JANUARY]
    month = sum((costs["user-month"] for costs in daily), Fraction(0))
    return [
        ("one release, user-day", daily[0]["user-day"], "0.015", "10 visits a user and day"),
        (
            "31 releases, user-month",
            month,
            "-",
            "each release reads its own day only, so costs add",
        ),
        (
            "one release of any days, user-month",
            rho(None)["user-month"],
            "14.415",
            "group privacy of 31: it may read a whole month",
        ),
        (
            "the same with 70 visits a month",
            rho(None, monthly=70)["user-month"],
            "0.735",
            "all 70 may fall into one cell; see theory 5.4 for what the bound itself costs",
        ),
    ]


def main() -> None:
    """Print the table."""
    print(f"{'counted for':<38}{'ρ':>9}{'ε at 1e-6':>11}{'paper ρ':>9}   assumes")
    for description, value, paper, assumption in rows():
        epsilon = zcdp_to_epsilon(value, DELTA)
        print(f"{description:<38}{float(value):>9.4f}{epsilon:>11.3f}{paper:>9}   {assumption}")


if __name__ == "__main__":
    main()
