"""CPU time of the dashboard pages with many rules and a long ledger.

Prints a table of pages for 10,000 rules and 100,000 releases. One column is for pipelines that
repeat the same releases, one for releases that are all different. Options set the sizes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any

from benchmarks.decide import ANSWER, bodies, policy
from starlette.testclient import TestClient

from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import PolicyApplied, ReleaseDecided, next_record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.journal.folded_ledger import read_event
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.service.app import create_app
from dpolicy.service.auth.access_rules import local_access
from dpolicy.service.http.limits import ServiceLimits

#: Paths of the fetched pages, by the name of the row.
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


def make_ledger(compiled: CompiledPolicy, releases: int, distinct: int) -> MemoryStore:
    """Return the ledger of a year with allowed releases, written without deciding them."""
    first = MemoryStore()
    DecisionPoint(first).apply(compiled)
    applied = read_event(first, 1)
    assert isinstance(applied, PolicyApplied)
    timestamp = "2025-11-01T00:00:00+00:00"
    start = PolicyApplied(timestamp, "", "", applied.digest, applied.sources, ())
    records: list[Record] = [next_record(None, start)]
    for number, body in enumerate(bodies(releases, "past", distinct)):
        day = date(2025, 11, 1).toordinal() + number * 365 // releases
        event = ReleaseDecided(
            f"{date.fromordinal(day)}T10:00:00+00:00",
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


def cpu_milliseconds(call: Callable[[], Any]) -> float:
    """Return the smallest CPU time of three calls, in milliseconds."""
    best = float("inf")
    for _ in range(3):
        before = time.process_time()
        call()
        best = min(best, time.process_time() - before)
    return best * 1000


def get_page(client: TestClient, path: str) -> None:
    """Get a page; raise an error if the response is not a success."""
    client.get(path).raise_for_status()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--releases", type=int, default=100_000)
    parser.add_argument("--different", type=int, nargs="*", default=[2_000, 100_000])
    options = parser.parse_args()
    compiled = policy()
    print(f"{compiled.kept_count:,} kept rules, {options.releases:,} releases; CPU time in ms")
    columns = []
    for distinct in options.different:
        decision_point = DecisionPoint(make_ledger(compiled, options.releases, distinct))
        limits = ServiceLimits(rate=1e9, burst=1e9)
        with TestClient(
            create_app(decision_point, local_access, limits), "http://localhost"
        ) as client:
            started = time.process_time()
            client.get("/").raise_for_status()
            times = {"first overview": (time.process_time() - started) * 1000}
            for name, path in PAGES.items():
                times[name] = cpu_milliseconds(partial(get_page, client, path))
        columns.append(times)
    print(f"{'':<28}" + "".join(f"{f'{n:,} different':>20}" for n in options.different))
    for name in columns[0]:
        print(f"{name:<28}" + "".join(f"{times[name]:>20,.0f}" for times in columns))


if __name__ == "__main__":
    main()
