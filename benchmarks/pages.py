"""How long the pages of the dashboard take with many rules and a long history, in CPU time.

Prints a table of views and of whole pages for 10,000 rules and 100,000 releases: of pipelines that
ask the same again and again, and of releases that are all different. Sizes can be given.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from datetime import date
from typing import Any

from benchmarks.decide import ANSWER, bodies, policy
from starlette.testclient import TestClient

from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import PolicyApplied, ReleaseDecided, next_record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.journal import read_event
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.service.app import create_app
from dpolicy.service.auth.access_rules import local_access
from dpolicy.service.http.limits import ServiceLimits

#: What is fetched, and what it is called.
PAGES = {
    "overview": "/",
    "overview, one attribute": "/?attribute=a7",
    "overview, last page": "/?page=99999",
    "overview, as JSON": "/?format=json",
    "rule over everything": "/rule?name=all+%C3%97+any+%C3%97+any+%C3%97+any&unit=user",
    "rule of an attribute": "/rule?name=attr%5Ba7%5D+%C3%97+any+%C3%97+any+%C3%97+any&unit=user",
    "releases": "/releases",
    "releases, searched": "/releases?q=a7+past99",
    "log": "/log",
    "policy": "/policy",
}


def history(compiled: CompiledPolicy, releases: int, distinct: int) -> MemoryStore:
    """A ledger of a year, written as it would have been, without deciding."""
    first = MemoryStore()
    DecisionPoint(first).apply(compiled)
    applied = read_event(first, 1)
    assert isinstance(applied, PolicyApplied)
    at = "2025-11-01T00:00:00+00:00"
    start = PolicyApplied(at, "", "", applied.digest, applied.sources, ())
    records: list[Record] = [next_record(None, start)]
    for number, body in enumerate(bodies(releases, "past", distinct)):
        when = date(2025, 11, 1).toordinal() + number * 365 // releases
        event = ReleaseDecided(
            f"{date.fromordinal(when)}T10:00:00+00:00",
            "",
            body["release"],
            parse_request(body).body,
            True,
            False,
            None,
            ANSWER,
        )
        records.append(next_record(records[-1], event))
    return MemoryStore(records)


def spent(call: Callable[[], Any]) -> float:
    """Milliseconds of CPU time of the best of three calls."""
    best = float("inf")
    for _ in range(3):
        before = time.process_time()
        call()
        best = min(best, time.process_time() - before)
    return best * 1000


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--releases", type=int, default=100_000)
    parser.add_argument("--different", type=int, nargs="*", default=[2_000, 100_000])
    chosen = parser.parse_args()
    compiled = policy()
    print(f"{compiled.kept_count:,} kept rules, {chosen.releases:,} releases; CPU time in ms")
    columns = []
    for distinct in chosen.different:
        point = DecisionPoint(history(compiled, chosen.releases, distinct))
        limits = ServiceLimits(rate=1e9, burst=1e9)
        with TestClient(create_app(point, local_access, limits), "http://localhost") as client:
            started = time.process_time()
            client.get("/").raise_for_status()
            times = {"first overview": (time.process_time() - started) * 1000}
            for name, path in PAGES.items():
                times[name] = spent(lambda path=path: client.get(path).raise_for_status())  # type: ignore[misc]
        columns.append(times)
    print(f"{'':<28}" + "".join(f"{f'{n:,} different':>20}" for n in chosen.different))
    for name in columns[0]:
        print(f"{name:<28}" + "".join(f"{times[name]:>20,.0f}" for times in columns))


if __name__ == "__main__":
    main()
