"""Middleware that checks host, credentials, rate limit, body size and origin.

It wraps the whole application, so no route can bypass it. It sets `request.state.principal`, which
is None only for a caller without valid credentials on a public path.
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

#: Cookie in which a browser stores its token.
COOKIE = "dpolicy-token"
#: Header with the number and hash of the last ledger record on which a response is based.
POSITION = "Dpolicy-Position"

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_SECURITY_HEADERS = {
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
        access: Callable[[], AccessRules],
        limits: ServiceLimits,
        metrics: Metrics,
        public_paths: frozenset[str],
    ) -> None:
        self._app, self._point, self._access = app, point, access
        self._limits, self._metrics, self._public_paths = limits, metrics, public_paths
        self._rate_limiter = RateLimiter(limits.rate, limits.burst)

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
        connection = HTTPConnection(scope)
        try:
            await self._admit(connection, scope)
        except DPolicyError as error:
            needs_login = isinstance(error, RequestRefused) and error.code == "unauthenticated"
            if needs_login and _accepts_page(scope, connection):
                target = quote(scope["path"], safe="/")
                await RedirectResponse(f"/login?next={target}", 303)(scope, receive, send)
            else:
                await error_response(error)(scope, receive, send)
            return
        await self._app(scope, self._limit_body(receive), send)

    async def _admit(self, connection: HTTPConnection, scope: Scope) -> None:
        """Store access rules and principal in the state of the request. Raise `RequestRefused` if
        the request is not admitted.
        """
        access = self._access_for(scope["path"])
        scope["state"]["access"] = access
        if access.local and _hostname(connection) not in _LOOPBACK_HOSTS:
            raise RequestRefused(
                "wrong-host", "without an access file the server accepts only local host names"
            )
        length = connection.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._limits.body_bytes:
            raise self._too_large()
        principal, has_token_header = await self._authenticate(connection, scope, access)
        scope["state"]["principal"] = principal
        changes_state = scope["method"] not in _SAFE_METHODS
        if changes_state and not has_token_header and not _is_same_origin(connection):
            raise RequestRefused("other-origin", "the request comes from a page of another site")

    def _access_for(self, path: str) -> AccessRules:
        """Return the access rules. On public paths, return empty rules if the file is invalid."""
        try:
            return self._access()
        except RequestRefused:
            if not self._is_public(path):
                raise
            return AccessRules()

    async def _authenticate(
        self, connection: HTTPConnection, scope: Scope, access: AccessRules
    ) -> tuple[Principal | None, bool]:
        """Return the principal, and whether the request has the token in its Authorization header.

        Browsers send cookies automatically but never that header, so a request with the header
        needs no check of its origin.
        """
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        has_token_header = scheme.lower() == "bearer" and bool(token)
        credential = token.strip() if has_token_header else connection.cookies.get(COOKIE)
        try:
            principal = await identify_caller(access, credential)
        except RequestRefused:
            host = connection.client.host if connection.client else ""
            self._rate_limiter.consume(f"address {host}")
            if not self._is_public(scope["path"]):
                raise
            return None, has_token_header
        self._rate_limiter.consume(f"person {principal.name}")
        return principal, has_token_header and not access.local

    def _is_public(self, path: str) -> bool:
        return path in self._public_paths or path.startswith("/static/")

    def _too_large(self) -> RequestRefused:
        message = f"the body is larger than {self._limits.body_bytes:,} bytes"
        return RequestRefused("too-large", message)

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
                text = f"the body did not arrive within {self._limits.body_seconds:g} seconds"
                raise RequestRefused("too-slow", text) from None
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > self._limits.body_bytes:
                raise self._too_large()
            return message

        return receive_limited

    def _add_headers(self, headers: MutableHeaders) -> None:
        head = self._point.head
        headers[POSITION] = f"{head.sequence}:{head.digest.hex()}"
        for name, value in _SECURITY_HEADERS.items():
            headers.setdefault(name, value)


async def identify_caller(access: AccessRules, credential: str | None) -> Principal:
    """Return the principal of a credential. Raise `RequestRefused` if there is none.

    A signed token is verified in a thread, because that may fetch the keys of its issuer.
    """
    now = datetime.now(UTC)
    if access.local or not is_jwt(credential):
        return access.identify(credential, now)
    return await anyio.to_thread.run_sync(access.identify, credential, now)


def _accepts_page(scope: Scope, connection: HTTPConnection) -> bool:
    is_api = scope["path"].startswith(("/v1/", "/access/"))
    return not is_api and "text/html" in connection.headers.get("accept", "")


def _hostname(connection: HTTPConnection) -> str | None:
    try:
        return urlsplit(f"//{connection.headers.get('host', '')}").hostname
    except ValueError:
        return None


def _is_same_origin(connection: HTTPConnection) -> bool:
    """Return whether the request comes from a page of this server, or from no page.

    Browsers set the headers `Origin` and `Sec-Fetch-Site`, and scripts cannot change them. Other
    programs usually send neither.
    """
    origin = connection.headers.get("origin")
    if origin is not None:
        try:
            return urlsplit(origin).netloc == connection.headers.get("host")
        except ValueError:
            return False
    return connection.headers.get("sec-fetch-site", "none") in ("same-origin", "none")
