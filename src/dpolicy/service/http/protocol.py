"""HTTP/1.1 protocol of the server: the parser of httptools, with limits that the parser lacks.

The parser refuses invalid header names and values, folded headers, and a body with two lengths.
This module refuses what the parser accepts: headers that are too large or too slow, requests
without exactly one `Host`, other versions than 1.0 and 1.1, targets that are no paths, and other
transfer codings than `chunked`. It ignores trailers, so no header arrives after the body.
"""

from __future__ import annotations

import asyncio

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

#: Upper limit for the bytes of a request line with its headers, and of data between two pieces of
#: a body. The parser keeps them in memory.
MAX_HEAD_BYTES = 65_536
#: Upper limit for the number of headers; each becomes several objects.
MAX_HEADERS = 100
#: Bytes of a header besides its name and its value: `: ` and the end of the line.
_SEPARATOR_BYTES = 4
#: Upper limit for the number of requests that wait on one connection for earlier responses.
MAX_PIPELINED = 100

_VERSIONS = frozenset({"1.0", "1.1"})


class RequestNotAccepted(ValueError):
    """Request that the parser accepts and the server does not. The parser stops at it."""


def create_protocol(header_seconds: float) -> type[HttpToolsProtocol]:
    """Return a protocol that closes connections whose request headers take too long."""

    class LimitedProtocol(_LimitedProtocol):
        seconds = header_seconds

    return LimitedProtocol


class _LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 protocol with a time limit for headers, and with limits for their size and form."""

    seconds = 20.0
    #: Closes the connection; None while a request is served.
    _timer: asyncio.TimerHandle | None = None
    #: Bytes since the parser last completed headers, a piece of a body or a request.
    _pending_bytes = 0
    _reads_headers = False
    _reads_body = False
    #: The request that is served; `cycle` is the last one that arrived.
    _served: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._pending_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request is served without the upgrade. The parser drops the rest of `data`.
            self.cycle.keep_alive = False
        except httptools.HttpParserError:
            self._refuse()
            return
        if self._pending_bytes > MAX_HEAD_BYTES:
            self._refuse()
        elif self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reads_headers = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reads_headers:  # a trailer is no header
            if len(self.headers) >= MAX_HEADERS:
                raise RequestNotAccepted("number of headers")
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._pending_bytes, self._reads_headers = 0, False
        self._check_request()
        super().on_headers_complete()
        self._reads_body = True
        if not self.pipeline:
            self._served = self.cycle

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._served = self.pipeline[-1][0]
        super().on_response_complete()

    def on_body(self, body: bytes) -> None:
        self._pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._pending_bytes, self._reads_body = 0, False
        super().on_message_complete()

    def _check_request(self) -> None:
        """Raise `RequestNotAccepted` unless request line and headers have an accepted form."""
        version, target = self.parser.get_http_version(), self.url
        size, hosts = len(target), 0
        for name, value in self.headers:
            size += len(name) + len(value) + _SEPARATOR_BYTES
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding" and (value.lower(), version) != (b"chunked", "1.1"):
                raise RequestNotAccepted("transfer coding")
        if version not in _VERSIONS or hosts > 1 or (hosts == 0 and version == "1.1"):
            raise RequestNotAccepted("version or host")
        if not target.startswith(b"/") or b"#" in target:
            raise RequestNotAccepted("target")
        if size > MAX_HEAD_BYTES or len(self.pipeline) >= MAX_PIPELINED:
            raise RequestNotAccepted("size")

    def _refuse(self) -> None:
        """Close the connection, with status 400 if the client would not take it for the response to
        an earlier request.
        """
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            can_respond = not self._reads_body
        else:
            can_respond = self._reads_body and not cycle.response_started and not self.pipeline
        for served in (cycle, self._served):
            if served is not None and not served.response_complete:  # it must not write any more
                served.disconnected = True
                served.message_event.set()
        if not can_respond:
            self.transport.close()
            return
        message = "Invalid HTTP request received."
        self.logger.warning(message)
        self.send_400_response(message)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
