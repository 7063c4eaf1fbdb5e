"""What a daily release of ρ = 0.015 costs a user-day and a user-month, by four ways of counting.

Run as `python examples/wikimedia/show.py`.
"""

from __future__ import annotations

from datetime import date
from fractions import Fraction

from dpolicy.privacy.conversion import zcdp_to_epsilon
from dpolicy.privacy.cost_report import report
from dpolicy.privacy.mechanisms.gaussian import Gaussian
from dpolicy.privacy.units.group_privacy import Setting, no_covers
from dpolicy.privacy.units.privacy_units import Relation, Touched, Unit, parse_period, touched

DELTA = Fraction("1e-6")
DAY = Unit("user-day", "user", parse_period("day"), Relation.CHANGE)
MONTH = Unit("user-month", "user", parse_period("month"), Relation.CHANGE)
#: σ² = Δ²/(2ρ) with Δ = 10 visits a day and ρ = 0.015; rounded up, ρ stays within 0.015.
SIGMA = Fraction("57.7351")
JANUARY = [date(2026, 1, day) for day in range(1, 32)]


def rho(days: Touched | None, monthly: int | None = None) -> dict[str, Fraction]:
    """ρ of one release for a user-day and a user-month; `monthly` bounds the visits of a month."""
    setting = Setting((DAY, MONTH), additive=False, touched=days, covers=no_covers)
    daily = Gaussian(SIGMA, Fraction(10))
    also = {} if monthly is None else {"user-month": Gaussian(SIGMA, Fraction(monthly))}
    costs = report(daily, 0, also, Relation.CHANGE, setting, ())
    found = {}
    for unit, cost in zip(setting.units, costs, strict=True):
        if cost.rho is None:
            raise ValueError(f"{unit.name} has no ρ")
        found[unit.name] = cost.rho
    return found


def rows() -> list[tuple[str, Fraction, str, str]]:
    """What is counted, its ρ, what the paper prints, and what it assumes."""
    daily = [rho(touched((day, day))) for day in JANUARY]
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
    for what, value, paper, why in rows():
        epsilon = zcdp_to_epsilon(value, DELTA)
        print(f"{what:<38}{float(value):>9.4f}{epsilon:>11.3f}{paper:>9}   {why}")


if __name__ == "__main__":
    main()
