"""Middleware that admits requests, limits their bodies, and adds headers to responses.

It wraps the whole application, so no route can bypass it. It sets `request.state.principal`, which
is None only for a caller without valid credentials on a public path.
"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from urllib.parse import quote

import anyio
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpolicy.errors import DPolicyError, RequestRefused
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.service.http.admission import (
    Admission,
    read_headers,
    too_large_error,
    too_slow_error,
)
from dpolicy.service.http.limits import ServiceLimits
from dpolicy.service.http.metrics import Metrics
from dpolicy.service.http.problem_details import error_response

#: Header with the number and hash of the last ledger record on which a response is based.
POSITION = "Dpolicy-Position"

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class AccessMiddleware:
    """ASGI middleware that admits or refuses each request and counts it."""

    def __init__(
        self,
        app: ASGIApp,
        point: DecisionPoint,
        admission: Admission,
        limits: ServiceLimits,
        metrics: Metrics,
    ) -> None:
        self._app, self._point, self._admission = app, point, admission
        self._limits, self._metrics = limits, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        started, status = monotonic(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._add_headers(MutableHeaders(scope=message))
            await send(message)

        try:
            await self._serve(scope, receive, send_with_headers)
        finally:
            operation = scope["state"].get("operation", "page")
            self._metrics.request(operation, status, monotonic() - started)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        try:
            access, principal = await self._admission.admit(scope, headers)
        except DPolicyError as error:
            needs_login = isinstance(error, RequestRefused) and error.code == "unauthenticated"
            if needs_login and _accepts_page(scope["path"], headers.get("accept", "")):
                target = quote(scope["path"], safe="/")
                await RedirectResponse(f"/login?next={target}", 303)(scope, receive, send)
            else:
                await error_response(error)(scope, receive, send)
            return
        scope["state"].update(access=access, principal=principal)
        with suppress(ClientDisconnect):  # a client that is gone gets no response
            await self._app(scope, self._limit_body(receive), send)

    def _limit_body(self, receive: Receive) -> Receive:
        """Wrap `receive`; it raises `RequestRefused` for a body that is too large or too slow."""
        size, complete, deadline = 0, False, monotonic() + self._limits.body_seconds

        async def receive_limited() -> Message:
            nonlocal size, complete
            if complete:  # the only message after the body is http.disconnect
                return await receive()
            try:
                with anyio.fail_after(max(0.0, deadline - monotonic())):
                    message = await receive()
            except TimeoutError:
                raise too_slow_error(self._limits) from None
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > self._limits.body_bytes:
                raise too_large_error(self._limits)
            return message

        return receive_limited

    def _add_headers(self, headers: MutableHeaders) -> None:
        head = self._point.head
        headers[POSITION] = f"{head.sequence}:{head.digest.hex()}"
        for name, value in SECURITY_HEADERS.items():
            headers.setdefault(name, value)


def _accepts_page(path: str, accept: str) -> bool:
    return not path.startswith(("/v1/", "/access/")) and "text/html" in accept
