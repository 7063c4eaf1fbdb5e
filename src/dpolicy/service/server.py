"""Server process: listens, announces its address, and stops cleanly on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EADDRINUSE
from importlib import import_module
from pathlib import Path

import uvicorn

from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.service.app import create_app
from dpolicy.service.auth.access_file import AccessFile
from dpolicy.service.auth.access_rules import local_access
from dpolicy.service.hot_route.submit_route import SubmitRoute
from dpolicy.service.http.limits import ServiceLimits
from dpolicy.service.http.protocol import create_protocol

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
    route = SubmitRoute(app, limits)
    config = uvicorn.Config(
        route,
        http=create_protocol(limits.body_seconds),
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
    keep_state_out_of_collections()
    listener = open_listener(address.host, address.port)
    url = address.url(listener.getsockname()[1])
    with _ignore_stop_signals():
        server = _AnnouncingServer(config, lambda: announce(url))
        with asyncio.Runner(loop_factory=_find_loop_factory()) as runner:
            runner.run(server.serve(sockets=[listener]))
        route.close()


def keep_state_out_of_collections() -> None:
    """Let the garbage collector skip all objects of now: the ledger state and its policy.

    They live as long as the server. A full collection stops all requests while it visits them.
    """
    gc.collect()
    gc.freeze()


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


def _find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the event loop of uvloop; None, for that of asyncio, if uvloop is not installed."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


@contextmanager
def _ignore_stop_signals() -> Iterator[None]:
    """Ignore stop signals outside uvicorn, which raises the signal again after it has stopped."""
    before = {number: signal.signal(number, lambda *_: None) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def open_listener(host: str, port: int) -> socket.socket:
    """Open a socket to listen on. Raise `OSError` that names host and port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is IPPROTO_TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        hint = "\nhelp: choose another port with --port" if error.errno == EADDRINUSE else ""
        message = f"cannot listen on {host}, port {port}: {error.strerror or error}{hint}"
        raise OSError(error.errno, message) from None
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
