"""Servers without a rate limit, and clients that keep their connections open."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from tests.service.servers import Server, access, serving, token

CLIENTS = 64

#: Returns the next request of a client, as bytes.
NextRequest = Callable[[], bytes]


@contextmanager
def use_version(source: str | None) -> Iterator[None]:
    """Let new processes import dpolicy from a folder; None means the version of this process."""
    before = os.environ.get("PYTHONPATH")
    if source is not None:
        os.environ["PYTHONPATH"] = source
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH", None)
        if before is not None:
            os.environ["PYTHONPATH"] = before


@contextmanager
def run_server(ledger: str, policy: str | None, source: str | None = None) -> Iterator[Server]:
    """Run a server until the block ends; without a policy, the ledger must have one.

    `source` is the folder of another version of dpolicy that runs instead of this one.
    """
    with tempfile.TemporaryDirectory() as folder, use_version(source):
        (Path(folder) / "access.yaml").write_text(access())
        if policy is not None:
            (Path(folder) / "policy.yaml").write_text(policy)
            apply = ("apply", f"{folder}/policy.yaml", "--ledger", ledger)
            command = (sys.executable, "-c", "from dpolicy.cli.main import run; run()", *apply)
            subprocess.run(command, check=True, capture_output=True)
        program = (
            "import dpolicy.service.server as server; "
            "from dpolicy.service.http.limits import ServiceLimits; "
            "server.ServiceLimits = lambda: ServiceLimits(rate=1e9, burst=1e9); "
            "from dpolicy.cli.main import run; run()"
        )
        with serving(ledger, "--access", f"{folder}/access.yaml", program=program) as server:
            yield server


def cpu_seconds(server: Server) -> float:
    """Return the CPU time that a server has used."""
    stat = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def write_request(method: str, path: str, payload: Any = None) -> bytes:
    """Return a request of the analyst ana, as bytes."""
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token('ana')}\r\n"
    )
    if payload is None:
        return f"{head}\r\n".encode()
    body = json.dumps(payload).encode()
    fields = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return f"{head}{fields}".encode() + body


class _Client(asyncio.Protocol):
    """A client that sends a request as soon as it has the response to the one before."""

    def __init__(self, next_request: NextRequest, until: float, latencies: list[float]) -> None:
        self._next_request, self._until, self._latencies = next_request, until, latencies
        self._received = b""
        self._expected = 0
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._received, self._expected = b"", 0
        request = self._next_request()
        self._started = time.monotonic()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._expected and b"\r\n\r\n" in self._received:
            head = self._received.partition(b"\r\n\r\n")[0]
            if not head.startswith(b"HTTP/1.1 200"):
                self._transport.abort()
                self.closed.set_exception(SystemExit(self._received.decode()))
                return
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            self._expected = len(head) + 4 + length
        if self._expected and len(self._received) >= self._expected:
            now = time.monotonic()
            self._latencies.append(now - self._started)
            if now < self._until:
                self._send()
            else:
                self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


async def _run_clients(
    servers: Sequence[Server], next_request: NextRequest, seconds: float
) -> list[float]:
    loop, latencies, until = asyncio.get_running_loop(), list[float](), time.monotonic() + seconds
    clients = []
    for number in range(CLIENTS):
        host, _, port = servers[number % len(servers)].url.removeprefix("http://").partition(":")
        _, client = await loop.create_connection(
            lambda: _Client(next_request, until, latencies), host, int(port)
        )
        clients.append(client)
    await asyncio.gather(*(client.closed for client in clients))
    return latencies


def run_clients(
    servers: Sequence[Server], next_request: NextRequest, seconds: float
) -> list[float]:
    """Run 64 clients for some seconds; return the latencies of all requests in seconds."""
    return asyncio.run(_run_clients(servers, next_request, seconds))


def submit_bodies(bodies: Iterator[dict[str, Any]]) -> NextRequest:
    """Return the requests that submit releases one by one."""
    return lambda: write_request("POST", "/v1/releases", next(bodies))


def submit_many_bodies(bodies: Iterator[dict[str, Any]], size: int) -> NextRequest:
    """Return the requests that submit several releases each."""
    return lambda: write_request(
        "POST", "/v1/releases:submit-many", {"releases": list(islice(bodies, size))}
    )
