"""A decision point and who may use it → the application that serves it.

Handlers block, so each runs in a thread: requests that wait for the ledger share its commits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from dpolicy.errors import DPolicyError, RequestRefused
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.service.api.openapi import openapi_document
from dpolicy.service.api.routes import ENDPOINTS
from dpolicy.service.auth.access_rules import AccessRules
from dpolicy.service.auth.redaction import redact_response
from dpolicy.service.auth.sessions import session_routes as sessions
from dpolicy.service.dashboard.pages.page_routes import page_routes as pages
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint
from dpolicy.service.http.limits import ServiceLimits
from dpolicy.service.http.metrics import Metrics
from dpolicy.service.http.middleware import AccessMiddleware
from dpolicy.service.http.problem_details import (
    error_response,
    problem_from_error,
    problem_response,
)
from dpolicy.service.http.request_body import parse_body, parse_query

#: Requests that wait for the ledger together; more than these wait for a thread.
THREADS = 128

_log = logging.getLogger("dpolicy")


def create_app(
    point: DecisionPoint, access: Callable[[], AccessRules], limits: ServiceLimits | None = None
) -> Starlette:
    """The application. `access` is asked for each request, so that it can change."""
    limits, metrics = limits or ServiceLimits(), Metrics()
    paths = dict.fromkeys(endpoint.path for endpoint in ENDPOINTS)
    api: list[BaseRoute] = [_route(path, limits) for path in paths]
    described = Route("/openapi.json", _described, methods=["GET"])
    opened = {endpoint.path for endpoint in ENDPOINTS if not endpoint.roles}
    welcome = frozenset(opened | {"/login", "/logout", described.path})
    app = Starlette(
        routes=[*api, described, *sessions(), *pages()],
        middleware=[Middleware(AccessMiddleware, point, access, limits, metrics, welcome)],
        exception_handlers={
            DPolicyError: _refuse,
            HTTPException: _refuse_http,
            Exception: _refuse_unexpected,
        },
    )
    app.state.point, app.state.access, app.state.metrics = point, access, metrics
    app.state.threads = CapacityLimiter(THREADS)
    return app


async def _described(request: Request) -> Response:
    request.state.operation = "openapi"
    return Response(encode_canonical(openapi_document()), media_type="application/json")


def _route(path: str, limits: ServiceLimits) -> Route:
    """All that can be done at a path."""
    endpoints = {e.method: e for e in ENDPOINTS if e.path == path}

    async def serve(request: Request) -> Response:
        return await _served(endpoints.get(request.method) or endpoints["GET"], request, limits)

    return Route(path, serve, methods=list(endpoints))


async def _served(endpoint: Endpoint, request: Request, limits: ServiceLimits) -> Response:
    request.state.operation = endpoint.name
    _demand(endpoint, request)
    query = parse_query(request.query_params, endpoint.query)
    data = await _data(request) if endpoint.body is not None else b""

    def work() -> ApiResponse:
        body = None if endpoint.body is None else parse_body(data, endpoint.body, limits)
        call = _call(request, query, body)
        answer = endpoint.handler(call)
        return redact_response(call, answer) if endpoint.roles else answer

    if not endpoint.blocks:
        return _response(endpoint, work(), request)
    answer = await to_thread.run_sync(work, limiter=request.app.state.threads)
    return _response(endpoint, answer, request)


def _demand(endpoint: Endpoint, request: Request) -> None:
    """Raise `Refused` unless the caller has one of the roles."""
    principal = request.state.principal
    if endpoint.roles and (principal is None or not endpoint.roles & principal.roles):
        needed = " or ".join(sorted(endpoint.roles))
        raise RequestRefused("forbidden", f"this needs the role {needed}")


async def _data(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestRefused("not-json", "say `Content-Type: application/json`")
    return await request.body()


def _call(request: Request, query: dict[str, Any], body: Any) -> ApiRequest:
    state, principal = request.app.state, request.state.principal
    base, path = str(request.base_url).rstrip("/"), request.path_params
    access, metrics = request.state.access, state.metrics
    return ApiRequest(state.point, access, metrics, principal, base, path, query, body)


def _response(endpoint: Endpoint, answer: ApiResponse, request: Request) -> Response:
    if answer.chunks is not None:
        return StreamingResponse(answer.chunks, answer.status, media_type=endpoint.media_type)
    head = request.app.state.point.head
    value: Any = answer.value
    if answer.includes_position:
        position = {"sequence": head.sequence, "head": head.digest.hex()}
        value = {**value, "position": position}
    return Response(encode_canonical(value), answer.status, media_type=endpoint.media_type)


async def _refuse(request: Request, error: Exception) -> Response:
    if not isinstance(error, DPolicyError):
        raise error
    if problem_from_error(error)[0] in ("internal", "ledger-damaged"):
        _log.error("%s %s: %s", request.method, request.url.path, error, exc_info=error)
    return error_response(error)


async def _refuse_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "bad-request")
    return problem_response(code, error.detail, headers=error.headers)


async def _refuse_unexpected(request: Request, error: Exception) -> Response:
    return problem_response("internal", "it is in the server's log")
