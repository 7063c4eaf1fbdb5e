"""Strict parsing of request bodies (JSON, checked by shapes) and query parameters.

A duplicate key, an unknown key, NaN, a number out of range and an unpaired surrogate are errors;
the parser never guesses (SECURITY.md, item 5).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from starlette.datastructures import QueryParams

from dpolicy.errors import PolicyRejected, RequestRefused
from dpolicy.releases.python.quick_reader import decode_json
from dpolicy.service.http.endpoint import QueryParameter
from dpolicy.service.http.limits import ServiceLimits
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import INVALID, Shape
from dpolicy.text.yaml_reader import Source, read_json


def media_type(headers: Mapping[str, str]) -> str:
    """Return the type of a body in lower case, without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def parse_body(data: bytes, shape: Shape, limits: ServiceLimits) -> Any:
    """Return the value of a body. Raise `RequestRefused` if it is not JSON or too large, and
    `PolicyRejected` with all diagnostics if it does not have the shape.
    """
    if data.count(b",") > limits.body_values:
        raise RequestRefused("too-large", f"the body has more than {limits.body_values:,} values")
    value = _read_quickly(data, shape)
    return _read_strictly(data, shape) if value is None else value


def _read_quickly(data: bytes, shape: Shape) -> Any:
    """Return the value of a well-formed body; None if the strict reader must read it."""
    read_quickly: Callable[[dict[str, Any]], Any] | None = getattr(shape, "read_quickly", None)
    if read_quickly is None or b"\\u" in data:
        return None
    fields = decode_json(data)
    return None if fields is None else read_quickly(fields)


def _read_strictly(data: bytes, shape: Shape) -> Any:
    diagnostics = DiagnosticCollector()
    try:
        text = data.decode("utf-8")
        node = read_json(Source("body", text), diagnostics.report)
        if node is None or (b"\\u" in data and not _is_valid_unicode(text)):
            raise RequestRefused("bad-request", "the body is not a valid JSON object")
        value = shape.read(node, diagnostics.report)
    except UnicodeDecodeError:
        raise RequestRefused("bad-request", "the body is not UTF-8") from None
    except RecursionError:
        raise RequestRefused("bad-request", "the body is nested too deeply") from None
    if diagnostics.errors or value is INVALID:
        raise PolicyRejected(diagnostics.sorted_diagnostics)
    return value


def _is_valid_unicode(text: str) -> bool:
    """Return False if an escape is an unpaired surrogate, which UTF-8 cannot encode."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8")
    except ValueError:
        return False
    return True


def parse_query(query: QueryParams, parameters: Mapping[str, QueryParameter]) -> dict[str, Any]:
    """Return the value or default of each parameter. Raise `RequestRefused` for the first error."""
    unknown = [name for name in query if name not in parameters]
    if unknown:
        raise RequestRefused("bad-request", f"unknown parameter `{unknown[0][:40]}`")
    return {
        name: _parse_parameter(name, query.getlist(name), parameter)
        for name, parameter in parameters.items()
    }


def _parse_parameter(name: str, values: list[str], parameter: QueryParameter) -> Any:
    if parameter.repeatable:
        return [_parse_value(name, value, parameter) for value in values]
    if len(values) > 1:
        raise RequestRefused("bad-request", f"parameter `{name}` occurs more than once")
    return _parse_value(name, values[0], parameter) if values else parameter.default


def _parse_value(name: str, value: str, parameter: QueryParameter) -> Any:
    if parameter.choices and value not in parameter.choices:
        raise RequestRefused(
            "bad-request", f"`{name}` must be one of {', '.join(parameter.choices)}"
        )
    if not parameter.integer:
        return value
    if not (value.isascii() and value.isdigit() and len(value) <= 16):
        raise RequestRefused("bad-request", f"`{name}` must be an integer")
    if not parameter.minimum <= int(value) <= parameter.maximum:
        raise RequestRefused(
            "bad-request", f"`{name}` must be from {parameter.minimum} to {parameter.maximum}"
        )
    return int(value)
