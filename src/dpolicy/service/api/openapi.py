"""OpenAPI 3.1 document, generated from the table of endpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from dpolicy import __version__
from dpolicy.service.api.response_schemas import SCHEMAS
from dpolicy.service.api.routes import ENDPOINTS
from dpolicy.service.http.endpoint import Endpoint, QueryParameter
from dpolicy.service.http.problem_details import MEDIA_TYPE, PROBLEMS
from dpolicy.service.http.schema_parts import schema_reference

#: Problem codes that every endpoint can return.
PROBLEMS_OF_EVERY_ENDPOINT = (
    "bad-request",
    "wrong-host",
    "too-many-requests",
    "internal",
    "ledger-damaged",
    "ledger-unavailable",
    "access-unreadable",
)
#: Further problem codes of endpoints that need a role, and of endpoints with a body.
PROBLEMS_OF_AUTHENTICATED_ENDPOINTS = ("unauthenticated", "forbidden")
PROBLEMS_OF_ENDPOINTS_WITH_BODY = ("not-json", "too-large", "too-slow", "other-origin")

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


@lru_cache(maxsize=1)
def openapi_document() -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(plain_path(endpoint), {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dpolicy",
            "version": __version__,
            "description": "Keep the cumulative privacy risk of all releases under control.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def plain_path(endpoint: Endpoint) -> str:
    """Return the path without the converters of its parameters, such as `:path`."""
    return _PARAMETER.sub(r"{\1}", endpoint.path)


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "security": [{"token": []}] if endpoint.roles else [],
        "x-roles": sorted(endpoint.roles),
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": {**_success_responses(endpoint), **_problem_responses(endpoint)},
    }
    if endpoint.body is not None:
        content = {"application/json": {"schema": endpoint.body.schema()}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _path_parameters(endpoint: Endpoint) -> Sequence[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(endpoint.path)
    ]


def _query_parameters(endpoint: Endpoint) -> Sequence[dict[str, Any]]:
    return [_query_parameter(name, parameter) for name, parameter in endpoint.query.items()]


def _query_parameter(name: str, parameter: QueryParameter) -> dict[str, Any]:
    schema = parameter.schema()
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {"name": name, "in": "query", "description": parameter.description, "schema": schema}


def _success_responses(endpoint: Endpoint) -> dict[str, Any]:
    schema = schema_reference(endpoint.response_schema) if endpoint.response_schema else {}
    media = endpoint.media_type.partition(";")[0]
    responses = {"200": _response(endpoint.summary, media, schema)}
    if endpoint.may_need_approval:
        pending = schema_reference("PendingProposal")
        responses["202"] = _response("Approval required.", "application/json", pending)
    return responses


def _problem_responses(endpoint: Endpoint) -> dict[str, Any]:
    """Return the problems of an endpoint by status; one status can have several codes."""
    codes = [
        *PROBLEMS_OF_EVERY_ENDPOINT,
        *(PROBLEMS_OF_AUTHENTICATED_ENDPOINTS if endpoint.roles else ()),
        *(PROBLEMS_OF_ENDPOINTS_WITH_BODY if endpoint.body is not None else ()),
        *endpoint.problems,
    ]
    by_status: dict[str, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(str(PROBLEMS[code].status), []).append(code)
    responses = {}
    for status, same_status in sorted(by_status.items()):
        titles = "; ".join(PROBLEMS[code].title for code in same_status)
        responses[status] = _response(titles, MEDIA_TYPE, _problem_schema(same_status))
    if endpoint.response_schema == "Readiness":
        not_ready = {"schema": schema_reference("Readiness")}
        responses["503"]["content"]["application/json"] = not_ready
    return responses


def _problem_schema(codes: list[str]) -> dict[str, Any]:
    return {"allOf": [schema_reference("Problem"), {"properties": {"code": {"enum": codes}}}]}


def _response(description: str, media: str, schema: dict[str, Any]) -> dict[str, Any]:
    headers = {"Dpolicy-Position": {"schema": {"type": "string"}}}
    return {"description": description, "headers": headers, "content": {media: {"schema": schema}}}
