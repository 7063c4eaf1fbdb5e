"""Server process: listens, announces its address, and stops cleanly on SIGTERM or SIGINT."""

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

#: Seconds that running requests have to finish after the stop signal.
SHUTDOWN_GRACE_SECONDS = 30
#: Open files in addition to connections: each thread opens the ledger.
RESERVED_FILES = 256

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Host and port; port 0 selects a free port. With a certificate and its key, TLS is used."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    def url(self, port: int) -> str:
        """Return the URL for the port that the server listens on."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{port}"


def serve(
    point: DecisionPoint,
    address: ListenAddress,
    access: Path | None,
    announce: Callable[[str], None],
    limits: ServiceLimits | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Call `announce` with the URL once the server listens."""
    limits = limits or ServiceLimits()
    app = create_app(point, AccessFile(access) if access else local_access, limits)
    config = uvicorn.Config(
        app,
        http=_protocol_with_timeout(limits.body_seconds),
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        # uvicorn counts the current connection too, and returns 503 at the limit.
        limit_concurrency=connection_limit(limits.connections) + 1,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_SECONDS,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
    )
    listener = _open_listener(address.host, address.port)
    url = address.url(listener.getsockname()[1])
    with _ignore_stop_signals():
        server = _AnnouncingServer(config, lambda: announce(url))
        asyncio.run(server.serve(sockets=[listener]))


def connection_limit(connections: int) -> int:
    """Return the number of connections to accept: `connections`, or fewer if the process may not
    open enough files. Raise the soft limit of open files if that is necessary and allowed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    needed = connections + RESERVED_FILES
    if soft != unlimited and soft < needed:
        soft = needed if hard == unlimited else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == unlimited else min(connections, max(1, soft - RESERVED_FILES))


@contextmanager
def _ignore_stop_signals() -> Iterator[None]:
    """Ignore stop signals outside uvicorn, which raises the signal again after it has stopped."""
    before = {number: signal.signal(number, lambda *_: None) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _open_listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is IPPROTO_TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    return listener


class _AnnouncingServer(uvicorn.Server):
    """Server that calls a function when it accepts requests."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen and announce it."""
        await super().startup(sockets)
        self._announce()


def _protocol_with_timeout(seconds: float) -> type[H11Protocol]:
    """Return an HTTP/1.1 protocol that closes connections whose request headers take too long."""

    class TimeoutProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._timer = self.loop.call_later(seconds, self.transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            waits_for_headers = self.conn.their_state is h11.IDLE
            if waits_for_headers and self._timer is None:
                self._timer = self.loop.call_later(seconds, self.transport.close)
            elif not waits_for_headers and self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            if self._timer is not None:
                self._timer.cancel()
            super().connection_lost(exc)

    return TimeoutProtocol
