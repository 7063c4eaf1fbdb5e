"""Benchmark of decisions with many rules and a long ledger, and of shared commits.

It prints three tables: time per decision after recorded releases, time to open the ledger with and
without its snapshot, and durable decisions per second with one client and with 64 waiting clients,
on both stores. The recorded releases come from pipelines that repeat the same mechanisms
(`--pipelines` of them), or are all different. The default sizes take a few minutes.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.ledger.postgres_servers import running

from dpolicy.ledger.events import ReleaseDecided, next_record
from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.ledger.stores.postgres import PostgresStore
from dpolicy.ledger.stores.sqlite import SqliteStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.pdp.state.snapshot import write_snapshot
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

ATTRIBUTES = 370

#: An answer of typical length.
ANSWER = "x" * 1200

Result = TypeVar("Result")


def policy(attributes: int = ATTRIBUTES) -> CompiledPolicy:
    """Return a policy with about 10,000 kept rules: 370 attributes × 27 settings, and one more."""
    lines = ["dpolicy: 1", "accounting: {delta: 1e-7}", "schema:", "  attributes:"]
    lines += [f"    a{number}: {{risk: high}}" for number in range(attributes)]
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


def bodies(
    count: int, prefix: str, pipelines: int = 10**9, attributes: int = ATTRIBUTES
) -> list[dict[str, Any]]:
    """Return small releases of three attributes each; the same in every run."""
    rng = random.Random(0)
    mechanisms = [
        {
            "mechanism": {"kind": "gaussian", "sigma": Fraction(rng.choice((500, 800)))},
            "unit": "user",
            "attributes": sorted(f"a{n}" for n in rng.sample(range(attributes), 3)),
        }
        for _ in range(min(count, pipelines))
    ]
    return [
        {"release": f"{prefix}{number}", "mechanisms": [mechanisms[number % len(mechanisms)]]}
        for number in range(count)
    ]


def measure_seconds(call: Callable[[], Result]) -> tuple[float, Result]:
    """Return the seconds that a call takes, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def print_decisions(history: int, pipelines: int, compiled: CompiledPolicy) -> None:
    """Print the time per decision after recorded releases, and the time to open the ledger."""
    store = MemoryStore()
    decision_point = DecisionPoint(store)
    decision_point.apply(compiled)
    records = list(store.records_after(0))
    for body in bodies(history, "past", pipelines):  # written without deciding
        request = parse_request(body)
        event = ReleaseDecided(
            "2026-10-28", "", request.id, request.body, True, False, None, ANSWER
        )
        records.append(next_record(records[-1], event))
    past = MemoryStore(records)
    reading_seconds, decision_point = measure_seconds(lambda: DecisionPoint(past))
    charging_seconds, _ = measure_seconds(lambda: decision_point.check(bodies(1, "first")[0]))
    new_bodies = bodies(3000, "new", pipelines)
    submissions = [partial(decision_point.submit, body) for body in new_bodies]
    times = sorted(measure_seconds(submission)[0] for submission in submissions)
    data = decision_point.read_state(write_snapshot)
    past.save_snapshot(decision_point.read_state(lambda state: state.sequence), data)
    opening_seconds, _ = measure_seconds(lambda: DecisionPoint(past))
    print(
        f"{history:>9,}{min(history, pipelines):>11,}{times[1500] * 1e3:>9.2f}"
        f"{times[2970] * 1e3:>9.2f}{history / reading_seconds:>12,.0f}"
        f"{history / (reading_seconds + charging_seconds):>12,.0f}"
        f"{opening_seconds:>9.2f}{len(data) / 2**20:>8.0f}"
    )


def print_durable_decisions(
    name: str, open_store: Callable[[], LedgerStore], compiled: CompiledPolicy, count: int
) -> None:
    """Print durable decisions per second, with one client and with 64 waiting clients."""
    decision_point = DecisionPoint(open_store())
    decision_point.apply(compiled)
    alone_seconds, _ = measure_seconds(
        lambda: [decision_point.submit(body) for body in bodies(count, "alone", 200, 3)]
    )
    with ThreadPoolExecutor(64) as clients:
        many_bodies = bodies(8 * count, "many", 200, 3)
        shared_seconds, _ = measure_seconds(
            lambda: list(clients.map(decision_point.submit, many_bodies))
        )
    rates = count / alone_seconds, 8 * count / shared_seconds
    print(f"{name:<12}{rates[0]:>12,.0f}{rates[1]:>14,.0f}{rates[1] / rates[0]:>8.1f}×")
    decision_point.close()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--history", type=int, nargs="*", default=[100_000])
    parser.add_argument("--pipelines", type=int, nargs="*", default=[2_000, 100_000])
    parser.add_argument("--durable", type=int, default=300)
    options = parser.parse_args()
    compiled = policy()
    print(f"{compiled.kept_count:,} kept rules; decisions in memory, then opening the ledger")
    print(
        f"{'past':>9}{'different':>11}{'p50 ms':>9}{'p99 ms':>9}{'events/s':>12}"
        f"{'and added':>12}{'opening':>9}{'MB':>8}"
    )
    for history in options.history:
        for pipelines in options.pipelines:
            print_decisions(history, pipelines, compiled)
    print("\ndurable decisions per second, 100 rules")
    print(f"{'store':<12}{'alone':>12}{'64 clients':>14}")
    small_policy = policy(attributes=3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        print_durable_decisions(
            "SQLite", lambda: SqliteStore(str(path)), small_policy, options.durable
        )
    with running() as server:
        print_durable_decisions(
            "PostgreSQL", lambda: PostgresStore(server.url), small_policy, options.durable
        )


if __name__ == "__main__":
    main()
