"""An application → a process that serves it, says where, and stops cleanly when it is told to."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.service.app import create_app
from dpolicy.service.auth.access_file import AccessFile
from dpolicy.service.auth.access_rules import local_access
from dpolicy.service.http.limits import ServiceLimits

#: Seconds for requests to end after the signal to stop; then their connections are cut.
SHUTDOWN_GRACE_SECONDS = 30
#: Files that a server has open beside its connections: the ledger, once for each thread.
FILES = 256

_STOP = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen; port 0 is any that is free. With a certificate and its key, by TLS."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    def url(self, port: int) -> str:
        """How to reach it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{port}"


def serve(
    point: DecisionPoint,
    where: ListenAddress,
    access: Path | None,
    announce: Callable[[str], None],
    limits: ServiceLimits | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; `announce` is told the address once it answers."""
    limits = limits or ServiceLimits()
    app = create_app(point, AccessFile(access) if access else local_access, limits)
    config = uvicorn.Config(
        app,
        http=_protocol(limits.body_seconds),
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        # The server counts the connection that asks, too: at its limit it answers 503.
        limit_concurrency=connection_limit(limits.connections) + 1,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_SECONDS,
        ssl_certfile=where.certificate,
        ssl_keyfile=where.key,
    )
    listening = _listening(where.host, where.port)
    url = where.url(listening.getsockname()[1])
    with _quiet_signals():
        asyncio.run(_Announced(config, lambda: announce(url)).serve(sockets=[listening]))


def connection_limit(connections: int) -> int:
    """So many connections, or as many as there may be files; room for them is made if it can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = resource.RLIM_INFINITY
    wanted = connections + FILES
    if soft != endless and soft < wanted:
        soft = wanted if hard == endless else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == endless else min(connections, max(1, soft - FILES))


@contextmanager
def _quiet_signals() -> Iterator[None]:
    """The server raises a signal again once it has stopped; by then there is nothing to stop."""
    before = {number: signal.signal(number, lambda *_: None) for number in _STOP}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # That it is TCP must be said, or asyncio does not switch off waiting for more to send.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((host, port))
    return found


class _Announced(uvicorn.Server):
    """A server that says when it is there."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and say so."""
        await super().startup(sockets)
        self._announce()


def _protocol(seconds: float) -> type[H11Protocol]:
    """HTTP/1.1 that does not wait for ever for the headers of a request."""

    class Hurried(H11Protocol):
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._late = self.loop.call_later(seconds, self.transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            reading = self.conn.their_state is h11.IDLE
            if reading and self._late is None:
                self._late = self.loop.call_later(seconds, self.transport.close)
            elif not reading and self._late is not None:
                self._late.cancel()
                self._late = None

        def connection_lost(self, exc: Exception | None) -> None:
            if self._late is not None:
                self._late.cancel()
            super().connection_lost(exc)

    return Hurried
