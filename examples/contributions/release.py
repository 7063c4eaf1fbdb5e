"""One noisy histogram of visits for every day of January, with limits for a day and a month.

Run as `python examples/contributions/release.py`. It bounds the visits of every user, asks the
policy for each day, and only then looks at the day. The noise is NumPy's, from a fixed seed: it
shows the order of things and protects nobody. Real releases need a library of secure noise.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from dpolicy import DecisionPoint, load_policy
from dpolicy.errors import Denied
from dpolicy.integrations.contribution_bounding import keep
from dpolicy.integrations.contributions import Contributions, contributions
from dpolicy.integrations.gate import Gate
from dpolicy.privacy.units.privacy_units import Relation

JANUARY = [date(2026, 1, day) for day in range(1, 32)]
PAGES = ["help", "home", "news"]
LIMITS = {"user-day": 10, "user-month": 70}
POLICY = load_policy(Path(__file__).parent / "policy.yaml")
UNITS = POLICY.checked.vocabulary.units


def visits() -> pl.DataFrame:
    """Made-up visits of 300 users, some of whom come often."""
    draw = np.random.default_rng(1)
    users = np.repeat(np.arange(300), draw.geometric(0.02, 300))
    days = [JANUARY[0] + timedelta(days=int(d)) for d in draw.integers(0, 31, len(users))]
    rows = {"user": users, "day": days, "page": draw.choice(PAGES, len(users))}
    return pl.DataFrame(rows).with_columns(key=draw.random(len(users)))


def released(limits: Contributions, sigma: float) -> list[dict[str, float]]:
    """The histograms that the policy allows, on a ledger of their own."""
    point = DecisionPoint(":memory:")
    point.apply(POLICY)
    gate, records, draw = Gate(point), visits(), np.random.default_rng(2)
    histograms = []
    for day in JANUARY:
        said = limits.stated({"kind": "gaussian", "sigma": sigma}, about=(day, day))
        try:
            run = gate.reserve(f"visits-{day}", {**said, "attributes": ["page"]})
        except Denied:
            continue
        with run:
            kept = keep(records, limits, entity="user", day="day", order=["key"])
            counts = dict(kept.filter(pl.col("day") == day)["page"].value_counts().iter_rows())
            noise = draw.normal(0, sigma, len(PAGES))
            histograms.append({p: counts.get(p, 0) + n for p, n in zip(PAGES, noise, strict=True)})
    return histograms


def row(name: str, limits: Contributions, sigma: float) -> str:
    """What a way of bounding states for one day, and how much of January it can release."""
    day = (JANUARY[13], JANUARY[13])
    l2 = [float(limits.sensitivity(UNITS[u], Relation.CHANGE, day).l2) for u in LIMITS]
    first, last = limits.read(day)
    sizes = f"{l2[0]:>9.3f}{l2[1]:>12.3f}{(last - first).days + 1:>11}"
    return f"{name:<30}{sizes}{sigma:>8g}{len(released(limits, sigma)):>11}"


def main() -> None:
    """Print a row for each way."""
    shared = contributions(UNITS, LIMITS, (JANUARY[0], JANUARY[-1]))
    quotas = shared.without_sharing()
    print(f"{'':<30}{'user-day':>9}{'user-month':>12}{'days read':>11}{'σ':>8}{'released':>11}")
    print(row("10 a day, then 70 a month", shared, 100))
    print(row(f"{quotas.limits[0].most} a day, a fixed quota", quotas, 20))


if __name__ == "__main__":
    main()
