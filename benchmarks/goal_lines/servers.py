"""Servers: CPU of a submission relative to a request that does nothing, and submissions a second.

CPU is that of the server process. 64 clients keep their connections open, and each waits for a
response before it sends the next request.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.goal_lines.durable import MANY, open_raw_writer
from benchmarks.goal_lines.line import Line, Options
from benchmarks.http_clients import (
    CLIENTS,
    NextRequest,
    cpu_seconds,
    run_clients,
    run_server,
    submit_bodies,
    submit_many_bodies,
    write_request,
)
from benchmarks.workloads import SMALL_POLICY, make_small_workload
from tests.ledger.postgres_servers import running
from tests.service.servers import Server

from dpolicy.pdp.decision_point import DecisionPoint


@dataclass(frozen=True)
class Load:
    """Requests a second, and the CPU seconds of the servers for one request."""

    rate: float
    cpu: float


def measure_load(servers: Sequence[Server], request: NextRequest, seconds: float) -> Load:
    """Measure what servers do for 64 clients."""
    start, before = time.monotonic(), sum(map(cpu_seconds, servers))
    count = len(run_clients(servers, request, seconds))
    elapsed, used = time.monotonic() - start, sum(map(cpu_seconds, servers)) - before
    return Load(count / elapsed, used / count)


def has_submit_many(server: Server) -> bool:
    """Return whether the server has the endpoint for many independent releases."""
    response = server.client("ana").post("/v1/releases:submit-many", json={"releases": []})
    return response.status_code not in (404, 405)


class Loads:
    """What was measured of each kind of request, several times. Mutable."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loads: dict[str, list[Load]] = {}

    def measure(self, name: str, server: Server, request: NextRequest) -> None:
        """Measure a kind of request once more."""
        load = measure_load([server], request, self._seconds)
        self._loads.setdefault(name, []).append(load)

    def rate(self, name: str) -> float:
        """Return the largest number of requests a second; NaN if nothing was measured."""
        return max((load.rate for load in self._loads.get(name, ())), default=math.nan)

    def cpu(self, name: str) -> float:
        """Return the smallest number of CPU seconds a request; NaN if nothing was measured."""
        return min((load.cpu for load in self._loads.get(name, ())), default=math.nan)


def measure_http(options: Options) -> list[Line]:
    """Return the lines of one server on SQLite."""
    ledger = f"{options.folder}/served.db"
    loads = measure_requests(ledger, options)
    raw_writer = open_raw_writer(f"{options.folder}/raw.db", DecisionPoint(ledger))
    raw = max(raw_writer.write(options.seconds).rate for _ in range(options.rounds))
    rate, cpu = loads.rate("submit"), loads.cpu("submit")
    lines = [
        Line(f"HTTP on SQLite, {CLIENTS} clients: submissions", rate, unit="/s"),
        Line("- ÷ raw appends", rate / raw),
        Line("- CPU of the server for each", cpu * 1e6, unit="µs"),
        Line("- CPU ÷ GET /health/live, which does nothing", cpu / loads.cpu("live"), 3),
        Line("- CPU ÷ GET /health", cpu / loads.cpu("health")),
        Line(f"HTTP submit-many of {MANY}: releases", loads.rate("many") * MANY, unit="/s"),
        Line("- CPU of the server for each", loads.cpu("many") / MANY * 1e6, unit="µs"),
    ]
    if options.before:
        lines += [
            Line("HTTP on SQLite: submissions ÷ `--before`", rate / loads.rate("before"), 12, True),
            Line("- CPU of `--before` ÷ CPU", loads.cpu("before") / cpu, 12, True),
        ]
    return lines


def measure_requests(ledger: str, options: Options) -> Loads:
    """Measure all kinds of requests in turn, and submissions to the server of `--before`."""
    loads, bodies = Loads(options.seconds), make_small_workload().repeat_bodies()
    submit, many = submit_bodies(bodies), submit_many_bodies(bodies, MANY)
    with ExitStack() as stack:
        server = stack.enter_context(run_server(ledger, SMALL_POLICY))
        run_clients([server], submit, 1.0)
        if options.before:
            old_ledger = f"{options.folder}/before.db"
            before = stack.enter_context(run_server(old_ledger, SMALL_POLICY, options.before))
            run_clients([before], submit, 1.0)
        for _ in range(options.rounds):
            loads.measure("submit", server, submit)
            loads.measure("health", server, lambda: write_request("GET", "/health"))
            loads.measure("live", server, lambda: write_request("GET", "/health/live"))
            if has_submit_many(server):
                loads.measure("many", server, many)
            if options.before:
                loads.measure("before", before, submit)
    return loads


def measure_two_servers(options: Options) -> list[Line]:
    """Return the lines of one and of two servers on one PostgreSQL."""
    submit = submit_bodies(make_small_workload().repeat_bodies())
    ones, twos = [], []
    with running() as postgres, ExitStack() as stack:
        servers = [stack.enter_context(run_server(postgres.url, SMALL_POLICY))]
        servers.append(stack.enter_context(run_server(postgres.url, None)))
        run_clients(servers, submit, 1.0)
        for _ in range(options.rounds):
            ones.append(measure_load(servers[:1], submit, options.seconds).rate)
            twos.append(measure_load(servers, submit, options.seconds).rate)
    return [
        Line(f"HTTP on PostgreSQL, {CLIENTS} clients: submissions", max(ones), unit="/s"),
        Line("- two servers ÷ one", max(twos) / max(ones), 0.95, True),
    ]
