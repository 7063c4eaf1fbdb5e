"""Turns the bytes of a parsed or type-checked CEL expression into plain nodes.

`cel-expr-python` hands out its syntax tree as protocol buffers (`google.protobuf.Any` around
`cel.expr.ParsedExpr` or `cel.expr.CheckedExpr`). The format is stable and the part we need is
small, so the wire format is read here by hand instead of through another dependency.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from dpolicy.errors import InvariantBroken

#: What a constant can hold; the last is for the kinds no predicate may use (null, uint, bytes …).
CelScalar = str | int | float | bool | None

# Field numbers of cel/expr/syntax.proto and cel/expr/checked.proto.
_EXPRESSION, _SOURCE = {"Parsed": (2, 3), "Checked": (4, 5)}, "positions"
_TYPE_MAP = 3
_POSITIONS = 4
_PRIMITIVES = {1: "bool", 2: "int", 3: "uint", 4: "double", 5: "string", 6: "bytes"}


@dataclass(frozen=True, slots=True)
class CelNode:
    """One node as CEL sees it, macros already expanded."""

    id: int
    kind: str  # constant | name | select | has | call | list | comprehension | other
    name: str = ""  # of the name, field, function or loop variable
    value: CelScalar = None
    children: tuple[CelNode, ...] = ()


@dataclass(frozen=True, slots=True)
class CelSyntax:
    """A tree, where each node stands in the text, and (if checked) which type it has."""

    root: CelNode
    positions: dict[int, int]  # node id → offset in code points
    types: dict[int, str]  # node id → e.g. `string`, `list(string)`, `dyn`


def decode_syntax(serialized: bytes) -> CelSyntax:
    """Read what `Expression.serialize()` returned."""
    wrapper = dict(_fields(serialized))
    stage = "Checked" if b"CheckedExpr" in _message(wrapper[1]) else "Parsed"
    expression, source = _EXPRESSION[stage]
    root: CelNode | None = None
    positions: dict[int, int] = {}
    types: dict[int, str] = {}
    for number, value in _fields(_message(wrapper[2])):
        if number == expression:
            root = _node(_message(value))
        elif number == source:
            positions = dict(_positions(_message(value)))
        elif number == _TYPE_MAP and stage == "Checked":
            entry = dict(_fields(_message(value)))
            types[_number(entry.get(1, 0))] = _type(_message(entry.get(2, b"")))
    if root is None:
        raise InvariantBroken("a compiled expression came without a tree")
    return CelSyntax(root, positions, types)


def _node(data: bytes) -> CelNode:
    identity, node = 0, CelNode(0, "other")
    for number, value in _fields(data):
        if number == 2:
            identity = _number(value)
        elif number in _READERS:
            node = _READERS[number](_message(value))
    return CelNode(identity, node.kind, node.name, node.value, node.children)


def _constant(data: bytes) -> CelNode:
    for number, value in _fields(data):
        if number == 2:
            return CelNode(0, "constant", "bool", bool(value))
        if number == 3:
            return CelNode(0, "constant", "int", _signed(_number(value)))
        if number == 5:
            return CelNode(0, "constant", "double", struct.unpack("<d", _message(value))[0])
        if number == 6:
            return CelNode(0, "constant", "string", _message(value).decode())
    return CelNode(0, "other", "constant")


def _name(data: bytes) -> CelNode:
    return CelNode(0, "name", _text(dict(_fields(data))[1]).removeprefix("."))


def _select(data: bytes) -> CelNode:
    found = dict(_fields(data))
    kind = "has" if found.get(3) else "select"
    return CelNode(0, kind, _text(found[2]), None, (_node(_message(found[1])),))


def _call(data: bytes) -> CelNode:
    function, children = "", []
    for number, value in _fields(data):
        if number == 2:
            function = _text(value)
        else:  # the target of a method comes first on the wire and counts as the first argument
            children.append(_node(_message(value)))
    return CelNode(0, "call", function, None, tuple(children))


def _list(data: bytes) -> CelNode:
    elements = [_node(_message(value)) for number, value in _fields(data) if number == 1]
    return CelNode(0, "list", "", None, tuple(elements))


def _comprehension(data: bytes) -> CelNode:
    found = dict(_fields(data))
    children = tuple(_node(_message(found[number])) for number in (2, 4, 5, 6, 7))
    kind = "other" if found.get(8) else "comprehension"
    return CelNode(0, kind, _text(found[1]), None, children)


_READERS = {
    3: _constant,
    4: _name,
    5: _select,
    6: _call,
    7: _list,
    8: lambda data: CelNode(0, "other", "struct"),
    9: _comprehension,
}


def _positions(data: bytes) -> Iterator[tuple[int, int]]:
    for number, value in _fields(data):
        if number == _POSITIONS:
            entry = dict(_fields(_message(value)))
            yield _number(entry.get(1, 0)), _number(entry.get(2, 0))


def _type(data: bytes) -> str:
    for number, value in _fields(data):
        if number == 3:
            return _PRIMITIVES.get(_number(value), "dyn")
        if number == 6:
            element = dict(_fields(_message(value))).get(1, b"")
            return f"list({_type(_message(element))})"
        if number in (2, 4, 5, 7, 9, 11, 14):
            return "other"
    return "dyn"


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of one message: number and value (bytes for everything but varints)."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        if wire == 2:
            size, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}[wire]
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, at
        shift += 7


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise InvariantBroken("a compiled expression has a number where a message belongs")
    return value


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise InvariantBroken("a compiled expression has a message where a number belongs")
    return value


def _text(value: int | bytes) -> str:
    return _message(value).decode()
