"""Endpoints of the API: method, path, roles, shape of the body, schema of the response.

Routes, the OpenAPI document and the table of roles are generated from `Endpoint` values, so they
always agree. Handlers block; the application calls them in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from dpolicy.errors import RequestRefused
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.service.auth.access_rules import AccessRules
from dpolicy.service.auth.principal import Principal, Role
from dpolicy.service.http.metrics import Metrics
from dpolicy.text.shapes import Shape


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """Authenticated request with its parsed body and query, as handlers receive it."""

    decision_point: DecisionPoint
    access: AccessRules
    metrics: Metrics
    principal: Principal
    base_url: str
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = None


def build_api_request(
    request: Request, body: Any, query: Mapping[str, Any] | None = None
) -> ApiRequest:
    """Build the request of a handler from an HTTP request that the middleware has accepted."""
    app_state, request_state = request.app.state, request.state
    return ApiRequest(
        decision_point=app_state.point,
        access=request_state.access,
        metrics=app_state.metrics,
        principal=request_state.principal,
        base_url=str(request.base_url).rstrip("/"),
        path=request.path_params,
        query=query or {},
        body=body,
    )


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """Response of a handler: JSON values, or a text in `chunks`.

    With `includes_position` the application adds the head of the ledger to the JSON values.
    """

    value: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    includes_position: bool = True
    chunks: Iterator[bytes] | None = None


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """Query parameter: a text, one of `choices`, or an integer from `minimum` to `maximum`."""

    description: str
    choices: tuple[str, ...] = ()
    integer: bool = False
    minimum: int = 0
    maximum: int = 2**53
    repeatable: bool = False
    default: Any = None

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameter."""
        if self.integer:
            return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}
        value = {"enum": list(self.choices)} if self.choices else {"type": "string"}
        return {"type": "array", "items": value} if self.repeatable else value


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path. Without roles it needs no authentication.

    `response_schema` is the name of a schema; `problems` are the problem codes that not every
    endpoint can return. An endpoint that `may_need_approval` can return 202 with a proposal.
    """

    method: str
    path: str
    name: str
    summary: str
    handler: Callable[[ApiRequest], ApiResponse]
    roles: frozenset[Role]
    response_schema: str
    body: Shape | None = None
    query: Mapping[str, QueryParameter] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    media_type: str = "application/json"
    may_need_approval: bool = False
    blocks: bool = True


def ensure_role(endpoint: Endpoint, principal: Principal | None) -> None:
    """Raise `RequestRefused` unless the caller has one of the roles of the endpoint."""
    if endpoint.roles and (principal is None or not endpoint.roles & principal.roles):
        needed = " or ".join(sorted(endpoint.roles))
        raise RequestRefused("forbidden", f"missing role: {needed}")
