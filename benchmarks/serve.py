"""How many durable submissions a server answers, and how long the slowest wait.

`PYTHONPATH=. python benchmarks/serve.py` starts real servers on SQLite and PostgreSQL, lets 64
clients submit, each its next release as soon as the last one was answered, and prints submissions a
second, half and 99 % of the waits, and the CPU time that the server spent on each. Then it asks for
the budgets and pages of a policy of 10,000 rules with 100,000 releases.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.decide import ANSWER, bodies
from benchmarks.decide import policy as many_rules
from tests.ledger.postgres_servers import running
from tests.service.servers import Server, access, policy_in_force, release, serving, token

from dpolicy.ledger.events import ReleaseDecided, next_record
from dpolicy.ledger.store_address import open_store
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.request_evaluation import parse_request

CLIENTS = 64
AT = "2026-10-28T12:00:00+00:00"
POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}, user-month: {period: month}}
schema:
  attributes: {zip: {risk: high}, views: {risk: low}, age: {risk: low}}
  labels: {stage: {values: [final, tuning], default: final}}
policies:
  - {name: global, kind: custom, when: always, units: [user, user-month], budget: {epsilon: 1000}}
  - name: per-attribute
    kind: attribute
    unit: user
    budgets: {low: {epsilon: 800}, high: {epsilon: 500}}
"""


async def one_client(server: Server, name: str, until: float, waits: list[float]) -> None:
    """Submit one release after the other on a connection of one's own."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/releases HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token('ana')}\r\n"
    count = 0
    while time.monotonic() < until:
        asked = release(f"{name}-{count}", "0.0001", attributes=["views"])
        body = json.dumps(asked).encode()
        kind = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        started = time.monotonic()
        writer.write(f"{head}{kind}".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(answer.decode())
        waits.append(time.monotonic() - started)
        count += 1
    writer.close()


async def load(server: Server, seconds: float) -> list[float]:
    """The waits of all clients."""
    waits: list[float] = []
    until = time.monotonic() + seconds
    run = str(time.time_ns())
    await asyncio.gather(*(one_client(server, f"{run}-{n}", until, waits) for n in range(CLIENTS)))
    return waits


def cpu(server: Server) -> float:
    """Seconds of CPU that a server has used."""
    stat = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def started(ledger: str, policy: str) -> Iterator[Server]:
    """A server with a policy and without a limit on requests."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "access.yaml").write_text(access())
        policy_in_force(ledger, policy)
        program = (
            "import dpolicy.service.server as server; "
            "from dpolicy.service.http.limits import Limits; "
            "server.Limits = lambda: Limits(rate=1e9, burst=1e9); "
            "from dpolicy.cli.main import run; run()"
        )
        with serving(ledger, "--access", f"{folder}/access.yaml", program=program) as server:
            yield server


def submissions(name: str, ledger: str, seconds: float) -> None:
    """A line of the table."""
    with started(ledger, POLICY) as server:
        asyncio.run(load(server, 1.0))
        before = cpu(server)
        waits = sorted(asyncio.run(load(server, seconds)))
        spent = cpu(server) - before
    late = waits[int(len(waits) * 0.99)]
    print(
        f"{name:<12} {len(waits) / seconds:>10.0f} {statistics.median(waits) * 1e3:>10.1f}"
        f" {late * 1e3:>10.1f} {spent / len(waits) * 1e3:>14.2f}"
    )


def large(ledger: str, releases: int) -> None:
    """A ledger of 10,000 rules and many releases, written without deciding them."""
    point = DecisionPoint(open_store(ledger))
    point.apply(many_rules())
    last = list(point.records())[-1]
    point.close()
    store = open_store(ledger)
    batch = []
    for number, body in enumerate(bodies(releases, "past", 2_000), 1):
        asked = parse_request(body)
        event = ReleaseDecided(AT, "ana", asked.id, asked.body, True, False, None, ANSWER)
        last = next_record(last, event)
        batch.append(last)
        if number % 10_000 == 0 or number == releases:
            with store.open_for_writing() as log:
                log.append(batch)
            batch = []
    store.close()


def looks(releases: int) -> None:
    """How long it takes to look at a large ledger, for the first time and again."""
    with tempfile.TemporaryDirectory() as folder:
        large(f"{folder}/ledger.db", releases)
        with serving(f"{folder}/ledger.db") as server:
            client = server.client()
            for path in ("/v1/budgets?limit=100", "/v1/releases", "/", "/budgets", "/releases"):
                waits, before = [], cpu(server)
                for _ in range(4):
                    started = time.monotonic()
                    answer = client.get(path)
                    waits.append((time.monotonic() - started) * 1e3)
                spent = (cpu(server) - before) / len(waits) * 1e3
                told = f"{waits[0]:>10.0f} {min(waits[1:]):>10.0f} {spent:>14.0f}"
                print(f"{path:<24} {answer.status_code:>6} {told}")


def main(seconds: float) -> None:
    """Print the tables."""
    print(f"{CLIENTS} clients, one release a request, every answer durable")
    print(f"{'ledger':<12} {'a second':>10} {'p50 ms':>10} {'p99 ms':>10} {'CPU ms each':>14}")
    with tempfile.TemporaryDirectory() as folder:
        submissions("SQLite", f"{folder}/ledger.db", seconds)
    with running() as postgres:
        submissions("PostgreSQL", postgres.url, seconds)
    print("\n10,000 rules, 100,000 releases of 2,000 pipelines")
    print(f"{'path':<24} {'status':>6} {'first ms':>10} {'again ms':>10} {'CPU ms each':>14}")
    looks(100_000)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
