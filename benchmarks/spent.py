"""Time of `spent` over 100,000 releases, for scopes that no rule has, and of the first question.

The ledger of each row has 100,000 releases with so many different contents. The scope of a question
is new each time; `cold` is the first question after the ledger was opened.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

RELEASES = 100_000
TEAMS = ("ads", "maps", "search", "trust", "research", "finance")
COUNTRIES = ("AT", "CH", "DE", "FR", "IT")

POLICY = """
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}, user-month: {period: month}}
schema:
  attributes: {a: {risk: low}, b: {risk: low}, c: {risk: high}, d: {risk: high}}
  labels: {team: {values: [ads, maps, search, trust, research, finance], required: true}}
  partitions: {country: {values: [AT, CH, DE, FR, IT], of: user}}
policies:
  - {name: everything, kind: custom, when: always, units: [user, user-month],
     budget: {epsilon: 100000}}
  - {name: attribute, kind: attribute, unit: user,
     budgets: {low: {epsilon: 100000}, medium: {epsilon: 100000}, high: {epsilon: 100000}}}
"""


def make_mechanism(number: int, *, places: bool) -> dict[str, Any]:
    """Return a mechanism that differs for every number."""
    rng = random.Random(number)
    kinds: list[dict[str, Any]] = [
        {"kind": "gaussian", "sigma": 50 + number / 1000},
        {"kind": "laplace", "scale": 100 + number / 1000},
        {"kind": "declared", "rho": round(1e-4 + number * 1e-9, 12)},
    ]
    stated: dict[str, Any] = {
        "mechanism": kinds[0] if rng.random() < 0.8 else rng.choice(kinds[1:]),
        "unit": "user",
        "attributes": sorted(rng.sample("abcd", rng.randint(1, 3))),
        "labels": {"team": rng.choice(TEAMS)},
    }
    if places:
        stated["where"] = {"country": rng.choice(COUNTRIES)}
        month = rng.randint(1, 12)
        stated["time"] = {"from": f"2026-{month:02}-01", "to": f"2026-{month:02}-{rng.randint(2, 28):02}"}
    return stated


def fill(contents: int, *, places: bool) -> MemoryStore:
    """Return a ledger with `RELEASES` releases of so many contents."""
    store = MemoryStore()
    point = DecisionPoint(store)
    point.apply(compile_policy([Source("policy.yaml", POLICY)]))
    mechanisms = [make_mechanism(number, places=places) for number in range(contents)]
    bodies = [
        {
            "release": f"r{number}",
            "by": f"author-{number % contents % 40}",
            "mechanisms": [mechanisms[number % contents]],
        }
        for number in range(RELEASES)
    ]
    for first in range(0, RELEASES, 1_000):
        point.import_many(bodies[first : first + 1_000])
    return store


def cpu(work: Callable[[], object]) -> float:
    """Return the CPU time of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Print the CPU time of each question."""
    print(f"{'contents':>9}{'places':>8}{'open s':>8}{'cold s':>8}{'scope s':>9}{'since s':>9}{'by s':>7}")
    for contents, places in ((100, False), (10_000, False), (10_000, True)):
        store = fill(contents, places=places)
        points: list[DecisionPoint] = []
        opened = cpu(lambda: points.append(DecisionPoint(store)))
        point = points[0]
        cold = cpu(lambda: point.spent(unit="user"))
        scope = max(
            cpu(lambda text=text: point.spent(text, unit=unit).as_json())
            for unit in ("user", "user-month")
            for text in ('labels.team == "ads"', '"a" in attributes && !("b" in attributes)', "always")
        )
        since = [cpu(lambda: point.spent(unit="user", since="2026-01-01")) for _ in range(2)][1]
        by = cpu(lambda: point.spent(unit="user", by=["author-1", "author-7"]))
        print(
            f"{contents:>9,}{places!s:>8}{opened:>8.2f}{cold:>8.2f}{scope:>9.2f}{since:>9.2f}{by:>7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
