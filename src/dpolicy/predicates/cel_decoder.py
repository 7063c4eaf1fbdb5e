"""Decoder of the serialized syntax tree of a CEL expression.

`cel-expr-python` returns its syntax tree as protocol buffers (`google.protobuf.Any` around
`cel.expr.ParsedExpr` or `cel.expr.CheckedExpr`). The format is stable and only a small part of it
is needed, so this module decodes the wire format without another dependency.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from dpolicy.errors import InvariantBroken

#: Value of a constant; None for the types that no predicate may use (null, uint, bytes …).
CelScalar = str | int | float | bool | None

# Field numbers of cel/expr/syntax.proto and cel/expr/checked.proto.
_EXPRESSION_AND_SOURCE = {"Parsed": (2, 3), "Checked": (4, 5)}
_TYPE_MAP = 3
_POSITIONS = 4
_PRIMITIVES = {1: "bool", 2: "int", 3: "uint", 4: "double", 5: "string", 6: "bytes"}


@dataclass(frozen=True, slots=True)
class CelNode:
    """Node of the CEL syntax tree, with macros expanded."""

    id: int
    kind: str  # constant | name | select | has | call | list | comprehension | other
    name: str = ""  # of the name, field, function or loop variable
    value: CelScalar = None
    children: tuple[CelNode, ...] = ()


@dataclass(frozen=True, slots=True)
class CelSyntax:
    """Syntax tree with the position and, if it was type-checked, the type of each node."""

    root: CelNode
    positions: dict[int, int]  # node id → offset in code points
    types: dict[int, str]  # node id → e.g. `string`, `list(string)`, `dyn`


def decode_syntax(serialized: bytes) -> CelSyntax:
    """Decode the bytes of `Expression.serialize()`."""
    wrapper = dict(_fields(serialized))
    stage = "Checked" if b"CheckedExpr" in _message(wrapper[1]) else "Parsed"
    expression, source = _EXPRESSION_AND_SOURCE[stage]
    root: CelNode | None = None
    positions: dict[int, int] = {}
    types: dict[int, str] = {}
    for number, value in _fields(_message(wrapper[2])):
        if number == expression:
            root = _decode_node(_message(value))
        elif number == source:
            positions = dict(_decode_positions(_message(value)))
        elif number == _TYPE_MAP and stage == "Checked":
            entry = dict(_fields(_message(value)))
            types[_number(entry.get(1, 0))] = _decode_type(_message(entry.get(2, b"")))
    if root is None:
        raise InvariantBroken("a compiled expression has no syntax tree")
    return CelSyntax(root, positions, types)


def _decode_node(data: bytes) -> CelNode:
    identity, node = 0, CelNode(0, "other")
    for number, value in _fields(data):
        if number == 2:
            identity = _number(value)
        elif number in _DECODERS:
            node = _DECODERS[number](_message(value))
    return CelNode(identity, node.kind, node.name, node.value, node.children)


def _decode_constant(data: bytes) -> CelNode:
    for number, value in _fields(data):
        if number == 2:
            return CelNode(0, "constant", "bool", bool(value))
        if number == 3:
            return CelNode(0, "constant", "int", _to_signed(_number(value)))
        if number == 5:
            return CelNode(0, "constant", "double", struct.unpack("<d", _message(value))[0])
        if number == 6:
            return CelNode(0, "constant", "string", _message(value).decode())
    return CelNode(0, "other", "constant")


def _decode_name(data: bytes) -> CelNode:
    return CelNode(0, "name", _text(dict(_fields(data))[1]).removeprefix("."))


def _decode_select(data: bytes) -> CelNode:
    fields = dict(_fields(data))
    kind = "has" if fields.get(3) else "select"
    return CelNode(0, kind, _text(fields[2]), None, (_decode_node(_message(fields[1])),))


def _decode_call(data: bytes) -> CelNode:
    function, children = "", []
    for number, value in _fields(data):
        if number == 2:
            function = _text(value)
        else:  # the target of a method comes first on the wire; it becomes the first argument
            children.append(_decode_node(_message(value)))
    return CelNode(0, "call", function, None, tuple(children))


def _decode_list(data: bytes) -> CelNode:
    elements = [_decode_node(_message(value)) for number, value in _fields(data) if number == 1]
    return CelNode(0, "list", "", None, tuple(elements))


def _decode_comprehension(data: bytes) -> CelNode:
    fields = dict(_fields(data))
    children = tuple(_decode_node(_message(fields[number])) for number in (2, 4, 5, 6, 7))
    kind = "other" if fields.get(8) else "comprehension"
    return CelNode(0, kind, _text(fields[1]), None, children)


_DECODERS = {
    3: _decode_constant,
    4: _decode_name,
    5: _decode_select,
    6: _decode_call,
    7: _decode_list,
    8: lambda data: CelNode(0, "other", "struct"),
    9: _decode_comprehension,
}


def _decode_positions(data: bytes) -> Iterator[tuple[int, int]]:
    for number, value in _fields(data):
        if number == _POSITIONS:
            entry = dict(_fields(_message(value)))
            yield _number(entry.get(1, 0)), _number(entry.get(2, 0))


def _decode_type(data: bytes) -> str:
    for number, value in _fields(data):
        if number == 3:
            return _PRIMITIVES.get(_number(value), "dyn")
        if number == 6:
            element = dict(_fields(_message(value))).get(1, b"")
            return f"list({_decode_type(_message(element))})"
        if number in (2, 4, 5, 7, 9, 11, 14):
            return "other"
    return "dyn"


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field of a message; values are varints or bytes."""
    offset = 0
    while offset < len(data):
        key, offset = _read_varint(data, offset)
        wire_type = key & 7
        if wire_type == 0:
            number, offset = _read_varint(data, offset)
            yield key >> 3, number
            continue
        if wire_type == 2:
            size, offset = _read_varint(data, offset)
        else:
            size = {1: 8, 5: 4}[wire_type]
        yield key >> 3, data[offset : offset + size]
        offset += size


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return the varint at an offset and the offset after it."""
    result = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, offset
        shift += 7


def _to_signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise InvariantBroken("a compiled expression has a number instead of a message")
    return value


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise InvariantBroken("a compiled expression has a message instead of a number")
    return value


def _text(value: int | bytes) -> str:
    return _message(value).decode()
