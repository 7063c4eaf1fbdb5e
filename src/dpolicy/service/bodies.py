"""The bytes of a request → values: strict JSON read by the shapes of the language.

A key that stands twice, an unknown key, NaN, an absurd number or half a character is a mistake
that is told, never read in some way (threats T13, T23, T25).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import QueryParams

from dpolicy.errors import PolicyRejected, Refused
from dpolicy.language.diagnostics import Findings
from dpolicy.language.shape import INVALID, Shape
from dpolicy.language.source import Source, read_json
from dpolicy.service.endpoint import Parameter
from dpolicy.service.limits import Limits


def read_body(data: bytes, shape: Shape, limits: Limits) -> Any:
    """The value of a body. Raises `Refused` or, with every mistake, `PolicyRejected`."""
    if data.count(b",") > limits.body_values:
        raise Refused("too-large", f"the body has more than {limits.body_values:,} values")
    found = Findings()
    try:
        text = data.decode("utf-8")
        node = read_json(Source("body", text), found)
        if node is None or (b"\\u" in data and not _whole_characters(text)):
            raise Refused("bad-request", "the body is not a JSON object that can be read")
        value = shape.read(node, found)
    except UnicodeDecodeError:
        raise Refused("bad-request", "the body is not UTF-8") from None
    except RecursionError:
        raise Refused("bad-request", "the body is nested too deeply") from None
    if found.errors or value is INVALID:
        raise PolicyRejected(found.all)
    return value


def _whole_characters(text: str) -> bool:
    """Whether every escape is a character; JSON can write half of one, UTF-8 cannot."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8")
    except ValueError:
        return False
    return True


def read_query(said: QueryParams, known: Mapping[str, Parameter]) -> dict[str, Any]:
    """The parameters of a query. Raises `Refused` for the first that cannot be meant."""
    unknown = [name for name in said if name not in known]
    if unknown:
        raise Refused("bad-request", f"there is no parameter `{unknown[0][:40]}`")
    return {name: _parameter(name, said.getlist(name), told) for name, told in known.items()}


def _parameter(name: str, values: list[str], told: Parameter) -> Any:
    if told.many:
        return [_one(name, value, told) for value in values]
    if len(values) > 1:
        raise Refused("bad-request", f"`{name}` is there twice")
    return _one(name, values[0], told) if values else told.default


def _one(name: str, value: str, told: Parameter) -> Any:
    if told.choices and value not in told.choices:
        raise Refused("bad-request", f"`{name}` must be one of {', '.join(told.choices)}")
    if not told.whole:
        return value
    if not (value.isascii() and value.isdigit() and len(value) <= 16):
        raise Refused("bad-request", f"`{name}` must be a whole number")
    if not told.least <= int(value) <= told.most:
        raise Refused("bad-request", f"`{name}` must be from {told.least} to {told.most}")
    return int(value)
