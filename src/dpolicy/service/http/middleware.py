"""Every request on its way in: is it meant for us, by whom, how often, how large, from which page.

One middleware around everything that is served, so that no route can forget it. What it lets
through has `request.state.principal`, except where everybody is welcome.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic
from urllib.parse import quote, urlsplit

import anyio
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpolicy.errors import DPolicyError, RequestRefused
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.service.auth.access_rules import AccessRules, is_jwt
from dpolicy.service.auth.principal import Principal
from dpolicy.service.http.limits import RateLimiter, ServiceLimits
from dpolicy.service.http.metrics import Metrics
from dpolicy.service.http.problem_details import error_response

#: The cookie in which a browser keeps its token.
COOKIE = "dpolicy-token"
#: The header that says up to which record of the ledger an answer knows.
POSITION = "Dpolicy-Position"

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class AccessMiddleware:
    """Lets in what may come in, and notes what went out."""

    def __init__(
        self,
        app: ASGIApp,
        point: DecisionPoint,
        access: Callable[[], AccessRules],
        limits: ServiceLimits,
        metrics: Metrics,
        welcome: frozenset[str],
    ) -> None:
        self._app, self._point, self._access = app, point, access
        self._limits, self._metrics, self._welcome = limits, metrics, welcome
        self._buckets = RateLimiter(limits.rate, limits.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        started, status = monotonic(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._mark(MutableHeaders(scope=message))
            await send(message)

        try:
            await self._serve(scope, receive, sending)
        finally:
            operation = scope["state"].get("operation", "page")
            self._metrics.request(operation, status, monotonic() - started)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        try:
            await self._let_in(connection, scope)
        except DPolicyError as error:
            page = isinstance(error, RequestRefused) and error.code == "unauthenticated"
            if page and _wants_page(scope, connection):
                back = quote(scope["path"], safe="/")
                await RedirectResponse(f"/login?next={back}", 303)(scope, receive, send)
            else:
                await error_response(error)(scope, receive, send)
            return
        await self._app(scope, self._limited(receive), send)

    async def _let_in(self, connection: HTTPConnection, scope: Scope) -> None:
        """Put who asks into the state of a request. Raises if it may not come in."""
        access = self._access_for(scope["path"])
        scope["state"]["access"] = access
        if access.local and _host(connection) not in _LOOPBACK:
            raise RequestRefused("wrong-host", "without an access file only this machine is served")
        length = connection.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._limits.body_bytes:
            raise self._too_large()
        principal, by_hand = await self._principal(connection, scope, access)
        scope["state"]["principal"] = principal
        if scope["method"] not in _SAFE and not by_hand and not _same_origin(connection):
            raise RequestRefused("other-origin", "a page of another site cannot act for you here")

    def _access_for(self, path: str) -> AccessRules:
        """Who may do what; where everybody is welcome, an unreadable file knows nobody."""
        try:
            return self._access()
        except RequestRefused:
            if not self._welcomes(path):
                raise
            return AccessRules()

    async def _principal(
        self, connection: HTTPConnection, scope: Scope, access: AccessRules
    ) -> tuple[Principal | None, bool]:
        """Who asks, and whether their program put the token there, not the browser by itself."""
        kind, _, token = connection.headers.get("authorization", "").partition(" ")
        by_hand = kind.lower() == "bearer" and bool(token)
        credential = token.strip() if by_hand else connection.cookies.get(COOKIE)
        try:
            principal = await identify_caller(access, credential)
        except RequestRefused:
            host = connection.client.host if connection.client else ""
            self._buckets.consume(f"address {host}")
            if not self._welcomes(scope["path"]):
                raise
            return None, by_hand
        self._buckets.consume(f"person {principal.name}")
        return principal, by_hand and not access.local

    def _welcomes(self, path: str) -> bool:
        return path in self._welcome or path.startswith("/static/")

    def _too_large(self) -> RequestRefused:
        return RequestRefused("too-large", f"a body has at most {self._limits.body_bytes:,} bytes")

    def _limited(self, receive: Receive) -> Receive:
        """The same body, as long as it is not too long and not too slow."""
        size, ended, until = 0, False, monotonic() + self._limits.body_seconds

        async def receiving() -> Message:
            nonlocal size, ended
            if ended:  # what follows is only whether the other side has gone
                return await receive()
            try:
                with anyio.fail_after(max(0.0, until - monotonic())):
                    message = await receive()
            except TimeoutError:
                said = f"a body has {self._limits.body_seconds:g} s to arrive"
                raise RequestRefused("too-slow", said) from None
            size += len(message.get("body", b""))
            ended = not message.get("more_body", False)
            if size > self._limits.body_bytes:
                raise self._too_large()
            return message

        return receiving

    def _mark(self, headers: MutableHeaders) -> None:
        head = self._point.head
        headers[POSITION] = f"{head.sequence}:{head.digest.hex()}"
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)


async def identify_caller(access: AccessRules, credential: str | None) -> Principal:
    """The person behind a credential, in a thread if keys may have to be fetched for it."""
    now = datetime.now(UTC)
    if access.local or not is_jwt(credential):
        return access.identify(credential, now)
    return await anyio.to_thread.run_sync(access.identify, credential, now)


def _wants_page(scope: Scope, connection: HTTPConnection) -> bool:
    api = scope["path"].startswith(("/v1/", "/access/"))
    return not api and "text/html" in connection.headers.get("accept", "")


def _host(connection: HTTPConnection) -> str | None:
    try:
        return urlsplit(f"//{connection.headers.get('host', '')}").hostname
    except ValueError:
        return None


def _same_origin(connection: HTTPConnection) -> bool:
    """Whether a request comes from a page of ours, or from no page at all.

    Browsers say where a request comes from and no page can make them lie about it; a program that
    is no browser says nothing.
    """
    origin = connection.headers.get("origin")
    if origin is not None:
        try:
            return urlsplit(origin).netloc == connection.headers.get("host")
        except ValueError:
            return False
    return connection.headers.get("sec-fetch-site", "none") in ("same-origin", "none")
