"""The table of endpoints → an OpenAPI 3.1 document; there is no other description to drift from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from dpolicy import __version__
from dpolicy.service.api.response_schemas import SCHEMAS, schema_reference
from dpolicy.service.api.routes import ENDPOINTS
from dpolicy.service.http.endpoint import Endpoint, QueryParameter
from dpolicy.service.http.problem_details import MEDIA_TYPE, PROBLEMS

#: What any request can be answered with.
PROBLEMS_OF_EVERY_ENDPOINT = (
    "bad-request",
    "wrong-host",
    "too-many-requests",
    "internal",
    "ledger-damaged",
    "ledger-unavailable",
    "access-unreadable",
)
#: What a request that needs a role can be answered with, and one that has a body.
PROBLEMS_OF_AUTHENTICATED_ENDPOINTS = ("unauthenticated", "forbidden")
PROBLEMS_OF_ENDPOINTS_WITH_BODY = ("not-json", "too-large", "too-slow", "other-origin")

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


@lru_cache(maxsize=1)
def openapi_document() -> dict[str, Any]:
    """The whole document."""
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
    """A path as it is documented, without the kinds of its parameters."""
    return _PARAMETER.sub(r"{\1}", endpoint.path)


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "security": [{"token": []}] if endpoint.roles else [],
        "x-roles": sorted(endpoint.roles),
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": {**_answers(endpoint), **_problems(endpoint)},
    }
    if endpoint.body is not None:
        content = {"application/json": {"schema": endpoint.body.schema()}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _path_parameters(endpoint: Endpoint) -> Sequence[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(endpoint.path)
    ]


def _query_parameters(endpoint: Endpoint) -> Sequence[dict[str, Any]]:
    return [_query_parameter(name, told) for name, told in endpoint.query.items()]


def _query_parameter(name: str, parameter: QueryParameter) -> dict[str, Any]:
    schema = parameter.schema()
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {"name": name, "in": "query", "description": parameter.description, "schema": schema}


def _answers(endpoint: Endpoint) -> dict[str, Any]:
    schema = schema_reference(endpoint.answer) if endpoint.answer else {}
    media = endpoint.media_type.partition(";")[0]
    told = {"200": _response(endpoint.summary, media, schema)}
    if endpoint.may_need_approval:
        said = "A second person has to agree."
        told["202"] = _response(said, "application/json", schema_reference("Waiting"))
    return told


def _problems(endpoint: Endpoint) -> dict[str, Any]:
    """Problems by status: one status can have several codes."""
    codes = [
        *PROBLEMS_OF_EVERY_ENDPOINT,
        *(PROBLEMS_OF_AUTHENTICATED_ENDPOINTS if endpoint.roles else ()),
        *(PROBLEMS_OF_ENDPOINTS_WITH_BODY if endpoint.body is not None else ()),
        *endpoint.problems,
    ]
    by_status: dict[str, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(str(PROBLEMS[code].status), []).append(code)
    told = {
        status: _response("; ".join(PROBLEMS[c].title for c in some), MEDIA_TYPE, _coded(some))
        for status, some in sorted(by_status.items())
    }
    if endpoint.answer == "Ready":
        told["503"]["content"]["application/json"] = {"schema": schema_reference("Ready")}
    return told


def _coded(codes: list[str]) -> dict[str, Any]:
    return {"allOf": [schema_reference("Problem"), {"properties": {"code": {"enum": codes}}}]}


def _response(says: str, media: str, schema: dict[str, Any]) -> dict[str, Any]:
    headers = {"Dpolicy-Position": {"schema": {"type": "string"}}}
    return {"description": says, "headers": headers, "content": {media: {"schema": schema}}}
