"""How long a decision takes with many rules and a long history, and what sharing commits is worth.

Prints three tables: decisions in memory, durable decisions per second alone and with 64 waiting
clients, and how fast a ledger is read again. Sizes can be given; the defaults take a few minutes.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpolicy.enforcement.decision_point import DecisionPoint
from dpolicy.language.source import Source
from dpolicy.ledger.memory import MemoryStore
from dpolicy.ledger.sqlite import SqliteStore
from dpolicy.ledger.store import Store
from dpolicy.rules.compiler import CompiledPolicy, compile_policy

ATTRIBUTES = 370


def policy() -> CompiledPolicy:
    """About 10,000 kept rules: 370 attributes × 27 contexts, and a global one."""
    lines = ["dpolicy: 1", "accounting: {delta: 1e-7}", "schema:", "  attributes:"]
    lines += [f"    a{number}: {{risk: high}}" for number in range(ATTRIBUTES)]
    lines.append("  labels:")
    lines += [f"    l{n}: {{values: [v0, v1, v2], default: v0}}" for n in range(3)]
    lines += [
        "policies:",
        "  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 3000}}",
        "  - {name: attr, kind: attribute, unit: user, budgets: {high: {epsilon: 1000}}}",
    ]
    for n in range(3):
        lines += [
            f"  - name: e{n}",
            "    kind: extension",
            "    settings:",
            f"      - {{name: first, when: 'labels.l{n} == \"v0\"', budget: same}}",
            f"      - {{name: some, when: 'labels.l{n} != \"v2\"', budget: {{times: 1.5}}}}",
            "      - {name: any, when: always, budget: {times: 3}}",
        ]
    return compile_policy([Source("policy.yaml", "\n".join(lines) + "\n")])


def bodies(count: int, prefix: str) -> list[dict[str, Any]]:
    """Small releases of three attributes each, the same every time."""
    chosen = random.Random(prefix)
    return [
        {
            "release": f"{prefix}{number}",
            "mechanisms": [
                {
                    "mechanism": {"kind": "gaussian", "sigma": Fraction(chosen.choice((500, 800)))},
                    "unit": "user",
                    "attributes": sorted(f"a{n}" for n in chosen.sample(range(ATTRIBUTES), 3)),
                }
            ],
        }
        for number in range(count)
    ]


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def decisions(history: int) -> tuple[MemoryStore, CompiledPolicy]:
    """Print how long one decision takes after a history."""
    store, compiled = MemoryStore(), policy()
    point = DecisionPoint(store)
    point.apply(compiled)
    filling = timed(lambda: [point.submit(body) for body in bodies(history, "past")])
    laps = sorted(timed(lambda b=body: point.submit(b)) for body in bodies(2000, "new"))  # type: ignore[misc]
    print(f"{compiled.kept:,} kept rules, {history:,} past releases, in memory")
    print(f"  p50 {laps[1000] * 1e3:.2f} ms   p99 {laps[1980] * 1e3:.2f} ms")
    print(f"  filling: {history / filling:,.0f} decisions/s")
    return store, compiled


def durable(name: str, make: Callable[[], Store], compiled: CompiledPolicy, count: int) -> None:
    """Print durable decisions per second, alone and with 64 clients that wait."""
    point = DecisionPoint(make())
    point.apply(compiled)
    alone = timed(lambda: [point.submit(body) for body in bodies(count, "alone")])
    with ThreadPoolExecutor(64) as clients:
        together = timed(lambda: list(clients.map(point.submit, bodies(8 * count, "many"))))
    rates = count / alone, 8 * count / together
    print(f"{name:<10}{rates[0]:>12,.0f}{rates[1]:>14,.0f}{rates[1] / rates[0]:>8.1f}×")
    point.close()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--history", type=int, default=20_000)
    parser.add_argument("--durable", type=int, default=300)
    chosen = parser.parse_args()
    store, compiled = decisions(chosen.history)
    reading = timed(lambda: DecisionPoint(store))
    print(f"  reading it again: {chosen.history / reading:,.0f} events/s")
    print("\ndurable decisions per second")
    print(f"{'store':<10}{'alone':>12}{'64 clients':>14}{'':>9}")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "ledger.db"
        durable("SQLite", lambda: SqliteStore(str(place)), compiled, chosen.durable)


if __name__ == "__main__":
    main()
