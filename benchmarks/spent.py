"""Time of `spent` over 100,000 releases, for scopes that no rule has, and of the first question.

The ledger of each row has 100,000 releases with so many different contents. The scope of a question
is new each time; `cold` is the first question after the ledger was opened.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

RELEASES = 100_000
TEAMS = ("ads", "maps", "search", "trust", "research", "finance")
SCOPES = ('labels.team == "ads"', '"a" in attributes && !("b" in attributes)', "always")
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
        month, last = rng.randint(1, 12), rng.randint(2, 28)
        stated["time"] = {"from": f"2026-{month:02}-01", "to": f"2026-{month:02}-{last:02}"}
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


def measure(contents: int, *, places: bool) -> list[float]:
    """Return CPU times on one ledger: open, the first question, others, by date and by author."""
    store = fill(contents, places=places)
    start = time.process_time()
    point = DecisionPoint(store)
    opened = time.process_time() - start
    cold = cpu(lambda: point.spent(unit="user"))
    questions = [(text, unit) for text in SCOPES for unit in ("user", "user-month")]
    scope = max(cpu(partial(ask, point, text, unit)) for text, unit in questions)
    cpu(lambda: point.spent(unit="user", since="2026-01-01"))
    since = cpu(lambda: point.spent(unit="user", since="2026-01-01"))
    by = cpu(lambda: point.spent(unit="user", by=["author-1", "author-7"]))
    return [opened, cold, scope, since, by]


def ask(point: DecisionPoint, text: str, unit: str) -> None:
    """Ask a question, and build the JSON of its answer."""
    point.spent(text, unit=unit).as_json()


def main() -> None:
    """Print the CPU time of each question in seconds."""
    names = ("open", "first", "scope", "since", "by")
    print(f"{'contents':>9}{'places':>8}" + "".join(f"{name:>8}" for name in names))
    for contents, places in ((100, False), (10_000, False), (10_000, True), (50_000, False)):
        times = measure(contents, places=places)
        print(f"{contents:>9,}{places!s:>8}" + "".join(f"{t:>8.2f}" for t in times), flush=True)


if __name__ == "__main__":
    main()
