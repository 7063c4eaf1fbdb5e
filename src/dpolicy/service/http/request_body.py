"""The bytes of a request → values: strict JSON read by the shapes of the language.

A key that stands twice, an unknown key, NaN, an absurd number or half a character is a mistake
that is told, never read in some way (threats T13, T23, T25).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import QueryParams

from dpolicy.errors import PolicyRejected, RequestRefused
from dpolicy.service.http.endpoint import QueryParameter
from dpolicy.service.http.limits import ServiceLimits
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import INVALID, Shape
from dpolicy.text.yaml_reader import Source, read_json


def parse_body(data: bytes, shape: Shape, limits: ServiceLimits) -> Any:
    """The value of a body. Raises `Refused` or, with every mistake, `PolicyRejected`."""
    if data.count(b",") > limits.body_values:
        raise RequestRefused("too-large", f"the body has more than {limits.body_values:,} values")
    found = DiagnosticCollector()
    try:
        text = data.decode("utf-8")
        node = read_json(Source("body", text), found.report)
        if node is None or (b"\\u" in data and not _whole_characters(text)):
            raise RequestRefused("bad-request", "the body is not a JSON object that can be read")
        value = shape.read(node, found.report)
    except UnicodeDecodeError:
        raise RequestRefused("bad-request", "the body is not UTF-8") from None
    except RecursionError:
        raise RequestRefused("bad-request", "the body is nested too deeply") from None
    if found.errors or value is INVALID:
        raise PolicyRejected(found.sorted_diagnostics)
    return value


def _whole_characters(text: str) -> bool:
    """Whether every escape is a character; JSON can write half of one, UTF-8 cannot."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8")
    except ValueError:
        return False
    return True


def parse_query(query: QueryParams, parameters: Mapping[str, QueryParameter]) -> dict[str, Any]:
    """The parameters of a query. Raises `Refused` for the first that cannot be meant."""
    unknown = [name for name in query if name not in parameters]
    if unknown:
        raise RequestRefused("bad-request", f"there is no parameter `{unknown[0][:40]}`")
    return {name: _parameter(name, query.getlist(name), told) for name, told in parameters.items()}


def _parameter(name: str, values: list[str], parameter: QueryParameter) -> Any:
    if parameter.many:
        return [_one(name, value, parameter) for value in values]
    if len(values) > 1:
        raise RequestRefused("bad-request", f"`{name}` is there twice")
    return _one(name, values[0], parameter) if values else parameter.default


def _one(name: str, value: str, parameter: QueryParameter) -> Any:
    if parameter.choices and value not in parameter.choices:
        raise RequestRefused(
            "bad-request", f"`{name}` must be one of {', '.join(parameter.choices)}"
        )
    if not parameter.whole:
        return value
    if not (value.isascii() and value.isdigit() and len(value) <= 16):
        raise RequestRefused("bad-request", f"`{name}` must be a whole number")
    if not parameter.least <= int(value) <= parameter.most:
        raise RequestRefused(
            "bad-request", f"`{name}` must be from {parameter.least} to {parameter.most}"
        )
    return int(value)
