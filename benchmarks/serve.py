"""Throughput and latency of a server, and the CPU time of importing the client.

`PYTHONPATH=. python benchmarks/serve.py` starts servers on SQLite and PostgreSQL. 64 clients submit
releases; each client waits for a response before it submits again. The script prints submissions
per second, the median and the 99th percentile of the latency, and the CPU time of the server per
submission. Then it requests budgets and pages for a policy of 10,000 rules with 100,000 releases.
`PYTHONPATH=. python benchmarks/serve.py import` prints only the CPU time of the import.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.decide import ANSWER, bodies
from benchmarks.decide import policy as many_rules
from benchmarks.http_clients import CLIENTS, cpu_seconds, run_clients, run_server, submit_bodies
from benchmarks.workloads import SMALL_POLICY, make_small_workload
from tests.ledger.postgres_servers import running
from tests.service.servers import serving

from dpolicy.ledger.events import ReleaseDecided, next_record
from dpolicy.ledger.store_address import open_store
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.request_evaluation import parse_request

TIMESTAMP = "2026-10-28T12:00:00+00:00"


def measure_submissions(name: str, ledger: str, seconds: float) -> None:
    """Print one line of the table of submissions."""
    submit = submit_bodies(make_small_workload().repeat_bodies())
    with run_server(ledger, SMALL_POLICY) as server:
        run_clients([server], submit, 1.0)
        before = cpu_seconds(server)
        latencies = sorted(run_clients([server], submit, seconds))
        used = cpu_seconds(server) - before
    count, median = len(latencies), statistics.median(latencies)
    percentile_99 = latencies[int(count * 0.99)]
    print(
        f"{name:<12} {count / seconds:>10.0f} {median * 1e3:>10.1f}"
        f" {percentile_99 * 1e3:>10.1f} {used / count * 1e3:>14.2f}"
    )


def write_large_ledger(ledger: str, releases: int) -> None:
    """Write a ledger with 10,000 rules and many releases, without deciding the releases."""
    decision_point = DecisionPoint(open_store(ledger))
    decision_point.apply(many_rules())
    last = list(decision_point.records())[-1]
    decision_point.close()
    store = open_store(ledger)
    batch = []
    for number, body in enumerate(bodies(releases, "past", 2_000), 1):
        request = parse_request(body)
        event = ReleaseDecided(
            TIMESTAMP, "ana", request.id, request.body, True, False, None, ANSWER
        )
        last = next_record(last, event)
        batch.append(last)
        if number % 10_000 == 0 or number == releases:
            with store.open_for_writing() as log:
                log.append(batch)
            batch = []
    store.close()


def measure_reads(releases: int) -> None:
    """Print the latency of the first and of later reads of a large ledger."""
    with tempfile.TemporaryDirectory() as folder:
        write_large_ledger(f"{folder}/ledger.db", releases)
        with serving(f"{folder}/ledger.db") as server:
            client = server.client()
            for path in ("/v1/budgets?limit=100", "/v1/releases", "/", "/budgets", "/releases"):
                latencies, before = [], cpu_seconds(server)
                for _ in range(4):
                    started = time.monotonic()
                    response = client.get(path)
                    latencies.append((time.monotonic() - started) * 1e3)
                used = (cpu_seconds(server) - before) / len(latencies) * 1e3
                times = f"{latencies[0]:>10.0f} {min(latencies[1:]):>10.0f} {used:>14.0f}"
                print(f"{path:<24} {response.status_code:>6} {times}")


def measure_client_import(runs: int = 10) -> None:
    """Print the median CPU time of importing the client in a new interpreter."""
    program = (
        "import time; before = time.process_time(); import dpolicy.client.client; "
        "print(time.process_time() - before)"
    )
    command = [sys.executable, "-c", program]
    outputs = [subprocess.check_output(command, text=True) for _ in range(runs)]
    print(f"import dpolicy.client: {statistics.median(map(float, outputs)):.3f} s of CPU time")


def main(seconds: float) -> None:
    """Print the tables."""
    measure_client_import()
    print(f"\n{CLIENTS} clients, one release per request, every response durable")
    print(f"{'ledger':<12} {'per second':>10} {'p50 ms':>10} {'p99 ms':>10} {'CPU ms each':>14}")
    with tempfile.TemporaryDirectory() as folder:
        measure_submissions("SQLite", f"{folder}/ledger.db", seconds)
    with running() as postgres:
        measure_submissions("PostgreSQL", postgres.url, seconds)
    print("\n10,000 rules, 100,000 releases of 2,000 pipelines")
    print(f"{'path':<24} {'status':>6} {'first ms':>10} {'later ms':>10} {'CPU ms each':>14}")
    measure_reads(100_000)


if __name__ == "__main__":
    if sys.argv[1:] == ["import"]:
        measure_client_import()
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
