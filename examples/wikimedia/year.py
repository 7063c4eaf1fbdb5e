"""A year of daily releases on an in-memory ledger: balances of units, and how long budgets last.

Run `python examples/wikimedia/year.py`. The releases are those of `show.py`: at most ten visits per
user and day, ρ = 0.015 for a user-day.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.privacy.conversion import zcdp_to_epsilon
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

NEW_YEAR, DAYS = date(2026, 1, 1), 365
DELTA = Fraction("1e-6")
POLICY = (Path(__file__).parent / "policy.yaml").read_text("utf-8")
#: Lifetime budget of a user in the policy, and alternative lifetime budgets as ε.
LIFETIME_BUDGET = "{rho: 5.475}"
LIFETIME_EPSILONS = (1, 2, 5, 10, 20)


def release(day: date) -> dict[str, Any]:
    """Return the release of the page views of one day."""
    noise = {"kind": "gaussian", "sigma": 57.7351, "sensitivity": 10}
    mechanism = {"mechanism": noise, "unit": "user-day", "attributes": ["page-views"]}
    when = {"from": day.isoformat(), "to": day.isoformat()}
    return {"release": f"page-views-{day}", "mechanisms": [{**mechanism, "time": when}]}


def submit_daily_releases(decision_point: DecisionPoint) -> Iterator[date]:
    """Submit one day after another and yield the allowed days, until a release is denied."""
    day = NEW_YEAR
    while day < NEW_YEAR + timedelta(2 * DAYS) and decision_point.submit(release(day)).allowed:
        yield day
        day += timedelta(1)


def year() -> tuple[int, dict[str, tuple[str, float]]]:
    """Return the number of allowed days, and the rule and ρ of the fullest block by unit."""
    decision_point = _start_decision_point(POLICY)
    allowed = len(list(submit_daily_releases(decision_point)))
    worst: dict[str, tuple[str, float]] = {}
    for balance in decision_point.budgets():
        rule, rho = balance.rule, balance.spent["rho"] or 0.0
        if rho > worst.get(rule.unit, ("", 0.0))[1]:
            worst[rule.unit] = rule.name, rho
    return allowed, worst


def lasts(epsilon: int) -> int:
    """Return the number of days that are allowed if a user has this lifetime ε."""
    text = POLICY.replace(LIFETIME_BUDGET, f"{{epsilon: {epsilon}}}")
    return len(list(submit_daily_releases(_start_decision_point(text))))


def _start_decision_point(text: str) -> DecisionPoint:
    decision_point = DecisionPoint(MemoryStore())
    decision_point.apply(compile_policy([Source("policy.yaml", text)]))
    return decision_point


def main() -> None:
    """Print the cost of a year for each unit, and the days that smaller lifetime budgets allow."""
    allowed, worst = year()
    print(f"{allowed} daily releases are allowed; then `for-ever` ends it")
    print(f"{'unit':<12}{'rule':<12}{'ρ':>8}{'ε at 1e-6':>11}")
    for unit, (rule, rho) in sorted(worst.items(), key=lambda item: item[1][1]):
        print(f"{unit:<12}{rule:<12}{rho:>8.3f}{zcdp_to_epsilon(Fraction(rho), DELTA):>11.3f}")
    for epsilon in LIFETIME_EPSILONS:
        print(f"with ε {epsilon} for ever, they end after {lasts(epsilon)} days")


if __name__ == "__main__":
    main()
