"""Noisy histograms of visits for every day of January, with limits per day and per month.

Run `python examples/contributions/release.py`. The script bounds the visits of every user and
reserves the cost of each day before it reads that day. The noise comes from NumPy with a fixed
seed: it illustrates the procedure and protects no data. A real release needs secure noise.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from dpolicy import DecisionPoint, load_policy
from dpolicy.errors import Denied
from dpolicy.integrations.contribution_bounding import bound_contributions
from dpolicy.integrations.contributions import Contributions, contributions_from_limits
from dpolicy.integrations.gate import Gate
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

JANUARY = [date(2026, 1, day) for day in range(1, 32)]
PAGES = ["help", "home", "news"]
LIMITS = {"user-day": 10, "user-month": 70}
POLICY = load_policy(Path(__file__).parent / "policy.yaml")
UNITS = POLICY.checked_policy_set.vocabulary.units


def visits() -> pl.DataFrame:
    """Return generated visits of 300 users, some of whom visit often."""
    random = np.random.default_rng(1)
    users = np.repeat(np.arange(300), random.geometric(0.02, 300))
    days = [JANUARY[0] + timedelta(days=int(d)) for d in random.integers(0, 31, len(users))]
    rows = {"user": users, "day": days, "page": random.choice(PAGES, len(users))}
    return pl.DataFrame(rows).with_columns(key=random.random(len(users)))


def release_histograms(limits: Contributions, sigma: float) -> list[dict[str, float]]:
    """Return the histograms that the policy allows, on a new in-memory ledger."""
    decision_point = DecisionPoint(":memory:")
    decision_point.apply(POLICY)
    gate, records, random = Gate(decision_point), visits(), np.random.default_rng(2)
    histograms = []
    for day in JANUARY:
        noisy_counts = {"kind": "gaussian", "sigma": sigma}
        fields = limits.mechanism_statement(noisy_counts, about=(day, day))
        try:
            run = gate.reserve(f"visits-{day}", {**fields, "attributes": ["page"]})
        except Denied:
            continue
        with run:
            kept = bound_contributions(records, limits, entity="user", day="day", order=["key"])
            counts = dict(kept.filter(pl.col("day") == day)["page"].value_counts().iter_rows())
            noise = random.normal(0, sigma, len(PAGES))
            histograms.append({p: counts.get(p, 0) + n for p, n in zip(PAGES, noise, strict=True)})
    return histograms


def row(name: str, limits: Contributions, sigma: float) -> str:
    """Return a line with the sensitivities for one day and the number of allowed histograms."""
    day = (JANUARY[13], JANUARY[13])
    l2 = [float(limits.sensitivity(UNITS[u], NeighbouringRelation.CHANGE, day).l2) for u in LIMITS]
    first, last = limits.days_read(day)
    sizes = f"{l2[0]:>9.3f}{l2[1]:>12.3f}{(last - first).days + 1:>11}"
    return f"{name:<30}{sizes}{sigma:>8g}{len(release_histograms(limits, sigma)):>11}"


def main() -> None:
    """Print one line for shared limits and one for fixed quotas."""
    shared = contributions_from_limits(UNITS, LIMITS, (JANUARY[0], JANUARY[-1]))
    quotas = shared.without_sharing()
    print(f"{'':<30}{'user-day':>9}{'user-month':>12}{'days read':>11}{'σ':>8}{'released':>11}")
    print(row("10 a day, then 70 a month", shared, 100))
    print(row(f"{quotas.limits[0].maximum} a day, a fixed quota", quotas, 20))


if __name__ == "__main__":
    main()
