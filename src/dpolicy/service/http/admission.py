"""Admission of requests: host, length of the body, credentials, rate limit and origin.

The middleware and the quick route for submissions use the same admission, so that neither admits a
request that the other refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlsplit

import anyio
from starlette.requests import HTTPConnection
from starlette.types import Scope

from dpolicy.errors import RequestRefused
from dpolicy.service.auth.access_rules import AccessRules, is_jwt
from dpolicy.service.auth.principal import Principal
from dpolicy.service.http.limits import RateLimiter, ServiceLimits

#: Cookie in which a browser stores its token.
COOKIE = "dpolicy-token"

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


class _TurnMemo:
    """Access rules, read once for all requests of one turn of the event loop.

    Reading them looks at the file, which costs more than the rest of an admission.
    """

    def __init__(self, access: Callable[[], AccessRules]) -> None:
        self._access = access
        self._current: AccessRules | None = None

    def __call__(self) -> AccessRules:
        """Return the access rules of this turn. Raise `RequestRefused` while they have an error."""
        if self._current is None:
            self._current = self._access()
            asyncio.get_running_loop().call_soon(self._forget)
        return self._current

    def _forget(self) -> None:
        self._current = None


class AdmittedCaller(NamedTuple):
    """Access rules for a request and its principal, which is None only for a caller without valid
    credentials on a public path.
    """

    access: AccessRules
    principal: Principal | None


def read_headers(scope: Scope) -> dict[str, str]:
    """Return the headers of a request by lower-case name; of several, the first."""
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in reversed(scope["headers"])
    }


class Admission:
    """Decides whether a request is admitted. It calls `access` for each request, so the rules can
    change.
    """

    def __init__(
        self,
        access: Callable[[], AccessRules],
        limits: ServiceLimits,
        public_paths: frozenset[str],
    ) -> None:
        self._access = _TurnMemo(access)
        self._limits, self._public_paths = limits, public_paths
        self._rate_limiter = RateLimiter(limits.rate, limits.burst)

    async def admit(self, scope: Scope, headers: Mapping[str, str]) -> AdmittedCaller:
        """Return the caller of a request. Raise `RequestRefused` if it is not admitted."""
        access = self._access_for(scope["path"])
        if access.local and _hostname(headers) not in _LOOPBACK_HOSTS:
            raise RequestRefused(
                "wrong-host", "without an access file the server accepts only local host names"
            )
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._limits.body_bytes:
            raise too_large_error(self._limits)
        principal, has_token_header = await self._authenticate(scope, headers, access)
        changes_state = scope["method"] not in _SAFE_METHODS
        if changes_state and not has_token_header and not _is_same_origin(headers):
            raise RequestRefused("other-origin", "the request comes from a page of another site")
        return AdmittedCaller(access, principal)

    def _access_for(self, path: str) -> AccessRules:
        """Return the access rules. On public paths, return empty rules if the file is invalid."""
        try:
            return self._access()
        except RequestRefused:
            if not self._is_public(path):
                raise
            return AccessRules()

    async def _authenticate(
        self, scope: Scope, headers: Mapping[str, str], access: AccessRules
    ) -> tuple[Principal | None, bool]:
        """Return the principal, and whether the request has the token in its Authorization header.

        Browsers send cookies automatically but never that header, so a request with the header
        needs no check of its origin.
        """
        scheme, _, token = headers.get("authorization", "").partition(" ")
        has_token_header = scheme.lower() == "bearer" and bool(token)
        if has_token_header:
            credential: str | None = token.strip()
        else:
            credential = HTTPConnection(scope).cookies.get(COOKIE) if "cookie" in headers else None
        try:
            principal = await identify_caller(access, credential)
        except RequestRefused:
            host = scope["client"][0] if scope.get("client") else ""
            self._rate_limiter.consume(f"address {host}")
            if not self._is_public(scope["path"]):
                raise
            return None, has_token_header
        self._rate_limiter.consume(f"person {principal.name}")
        return principal, has_token_header and not access.local

    def _is_public(self, path: str) -> bool:
        return path in self._public_paths or path.startswith("/static/")


def too_large_error(limits: ServiceLimits) -> RequestRefused:
    """Return the error for a body with too many bytes."""
    return RequestRefused("too-large", f"the body is larger than {limits.body_bytes:,} bytes")


def too_slow_error(limits: ServiceLimits) -> RequestRefused:
    """Return the error for a body that takes too long."""
    text = f"the body did not arrive within {limits.body_seconds:g} seconds"
    return RequestRefused("too-slow", text)


async def identify_caller(access: AccessRules, credential: str | None) -> Principal:
    """Return the principal of a credential. Raise `RequestRefused` if there is none.

    A signed token is verified in a thread, because that may fetch the keys of its issuer.
    """
    now = datetime.now(UTC)
    if access.local or not is_jwt(credential):
        return access.identify(credential, now)
    return await anyio.to_thread.run_sync(access.identify, credential, now)


def _hostname(headers: Mapping[str, str]) -> str | None:
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname
    except ValueError:
        return None


def _is_same_origin(headers: Mapping[str, str]) -> bool:
    """Return whether the request comes from a page of this server, or from no page.

    Browsers set the headers `Origin` and `Sec-Fetch-Site`, and scripts cannot change them. Other
    programs usually send neither.
    """
    origin = headers.get("origin")
    if origin is not None:
        try:
            return urlsplit(origin).netloc == headers.get("host")
        except ValueError:
            return False
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")
