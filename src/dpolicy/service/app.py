"""ASGI application that serves a decision point: the API, the login and the dashboard.

Handlers block, so each runs in a thread. `hot_route` serves small submissions without one.
"""

from __future__ import annotations

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
from dpolicy.service.auth.sessions import session_routes
from dpolicy.service.dashboard.pages.page_routes import page_routes
from dpolicy.service.http.admission import Admission
from dpolicy.service.http.endpoint import (
    ApiResponse,
    Endpoint,
    build_api_request,
    ensure_role,
)
from dpolicy.service.http.limits import ServiceLimits
from dpolicy.service.http.metrics import Metrics
from dpolicy.service.http.middleware import AccessMiddleware
from dpolicy.service.http.problem_details import (
    error_response,
    log_error,
    problem_response,
    unexpected_error_response,
)
from dpolicy.service.http.request_body import media_type, parse_body, parse_query

#: Number of handlers that run at the same time; further requests wait for a free thread.
THREADS = 128


def create_app(
    point: DecisionPoint, access: Callable[[], AccessRules], limits: ServiceLimits | None = None
) -> Starlette:
    """Create the application. It calls `access` for each request, so the rules can change."""
    limits, metrics = limits or ServiceLimits(), Metrics()
    paths = dict.fromkeys(endpoint.path for endpoint in ENDPOINTS)
    api_routes: list[BaseRoute] = [_route(path, limits) for path in paths]
    openapi_route = Route("/openapi.json", _handle_openapi, methods=["GET"])
    open_paths = {endpoint.path for endpoint in ENDPOINTS if not endpoint.roles}
    public_paths = frozenset(open_paths | {"/login", "/logout", openapi_route.path})
    admission = Admission(access, limits, public_paths)
    app = Starlette(
        routes=[*api_routes, openapi_route, *session_routes(), *page_routes()],
        middleware=[Middleware(AccessMiddleware, point, admission, limits, metrics)],
        exception_handlers={
            DPolicyError: _handle_error,
            HTTPException: _handle_http_exception,
            Exception: _handle_unexpected_error,
        },
    )
    app.state.point, app.state.access, app.state.metrics = point, access, metrics
    app.state.threads, app.state.admission = CapacityLimiter(THREADS), admission
    return app


async def _handle_openapi(request: Request) -> Response:
    request.state.operation = "openapi"
    return Response(encode_canonical(openapi_document()), media_type="application/json")


def _route(path: str, limits: ServiceLimits) -> Route:
    """Create the route of a path, for all its methods."""
    endpoints = {endpoint.method: endpoint for endpoint in ENDPOINTS if endpoint.path == path}

    async def handle(request: Request) -> Response:
        endpoint = endpoints.get(request.method) or endpoints["GET"]  # HEAD is served as GET
        return await _serve_endpoint(endpoint, request, limits)

    return Route(path, handle, methods=list(endpoints))


async def _serve_endpoint(endpoint: Endpoint, request: Request, limits: ServiceLimits) -> Response:
    request.state.operation = endpoint.name
    ensure_role(endpoint, request.state.principal)
    query = parse_query(request.query_params, endpoint.query)
    data = await _read_body(request) if endpoint.body is not None else b""

    def respond() -> ApiResponse:
        body = None if endpoint.body is None else parse_body(data, endpoint.body, limits)
        call = build_api_request(request, body, query)
        response = endpoint.handler(call)
        return redact_response(call, response) if endpoint.roles else response

    if not endpoint.blocks:
        return _http_response(endpoint, respond(), request)
    response = await to_thread.run_sync(respond, limiter=request.app.state.threads)
    return _http_response(endpoint, response, request)


async def _read_body(request: Request) -> bytes:
    if media_type(request.headers) != "application/json":
        raise RequestRefused("not-json", "the Content-Type header must be application/json")
    return await request.body()


def _http_response(endpoint: Endpoint, response: ApiResponse, request: Request) -> Response:
    if response.chunks is not None:
        return StreamingResponse(response.chunks, response.status, media_type=endpoint.media_type)
    point: DecisionPoint = request.app.state.point
    head = point.head
    value: Any = response.value
    if response.includes_position:
        position = {"sequence": head.sequence, "head": head.digest.hex()}
        value = {**value, "position": position}
    return Response(encode_canonical(value), response.status, media_type=endpoint.media_type)


async def _handle_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, DPolicyError):
        raise error
    log_error(request.method, request.url.path, error)
    return error_response(error)


async def _handle_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "bad-request")
    return problem_response(code, error.detail, headers=error.headers)


async def _handle_unexpected_error(request: Request, error: Exception) -> Response:
    return unexpected_error_response()
