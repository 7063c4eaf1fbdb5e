"""Nodes → canonical text that says the same, comments kept; and a policy set → its digest.

Order is the author's. Layout is ours: two spaces, one blank line between sections and policies,
and on one line whatever fits there below the level of sections.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction

from dpolicy.policy.model import PolicySet
from dpolicy.text.yaml_reader import ListNode, MapNode, ScalarNode, Source, TextNode, scalar_kind

#: How long a line may be before a map or list is written over several.
WIDTH = 100

#: Text that needs no quotes anywhere, also inside `{}` and `[]`.
_SAFE = re.compile(r"[A-Za-z0-9_./]+[A-Za-z0-9_./+-]*( [A-Za-z0-9_./+-]+)*")

#: Lists whose entries are policies: always written over several lines.
_POLICY_LISTS = ("policies", "each-release")


def policy_digest(policies: PolicySet) -> str:
    """A name for what a policy set says, whatever its layout, comments and order of names."""
    canonical = json.dumps(_value(policies), sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _value(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        said = {f.name: _value(getattr(value, f.name)) for f in fields(value) if f.compare}
        return {"": type(value).__name__, **said}
    if isinstance(value, Mapping):
        return {str(key): _value(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    return value if value is None or isinstance(value, bool | int) else str(value)


def format_text(source: Source, root: TextNode) -> str:
    """The canonical text of a document that was read from a source."""
    writer = _Writer(list(_comments(source, root)))
    if isinstance(root, MapNode):
        writer.map(root, depth=0, path="")
    elif isinstance(root, ListNode):
        writer.list(root, depth=0, path="")
    else:
        writer.line(0, _scalar(root), root.span.line)
    writer.flush(before=None, depth=0)
    return "\n".join(writer.lines).strip("\n") + "\n"


@dataclass(frozen=True, slots=True)
class _Comment:
    line: int
    text: str
    alone: bool


def _comments(source: Source, root: TextNode) -> Iterator[_Comment]:
    """Every comment: what follows a `#` outside of scalars, at a line's start or after a space."""
    hidden: dict[int, list[tuple[int, int]]] = {}
    for scalar in _scalars(root):
        span = scalar.span
        for number in range(span.line, span.end_line + 1):
            first = span.column if number == span.line else 0
            last = span.end_column if number == span.end_line else 10**9
            hidden.setdefault(number, []).append((first, last))
    for number, line in enumerate(source.lines, 1):
        for match in re.finditer(r"(?:^|(?<=\s))#", line):
            column = match.start() + 1
            if not any(first <= column < last for first, last in hidden.get(number, ())):
                before = line[: match.start()].strip()
                yield _Comment(number, line[match.start() :].rstrip(), not before)
                break


def _scalars(node: TextNode) -> Iterator[ScalarNode]:
    match node:
        case ScalarNode():
            yield node
        case ListNode(items=items):
            for item in items:
                yield from _scalars(item)
        case MapNode(entries=entries):
            for key, value in entries:
                yield key
                yield from _scalars(value)


class _Writer:
    """Writes nodes line by line and puts each comment where its line went."""

    def __init__(self, comments: list[_Comment]) -> None:
        self._comments = comments
        self.lines: list[str] = []

    def map(self, node: MapNode, depth: int, path: str) -> None:
        """One entry a line, or over several."""
        for position, (key, value) in enumerate(node.entries):
            if depth == 0 and position:
                self._set_apart(node.entries[position - 1][1], value)
            inner = f"{path}.{key.text}" if path else key.text
            self.entry(f"{_scalar(key)}:", value, depth, inner, key.span.line)

    def _set_apart(self, before: TextNode, value: TextNode) -> None:
        """A blank line between sections; short entries at the head of a file stay together."""
        if not (isinstance(before, ScalarNode) and isinstance(value, ScalarNode)):
            self.blank()

    def list(self, node: ListNode, depth: int, path: str) -> None:
        """One item a line, or over several; policies are set apart."""
        for position, item in enumerate(node.items):
            if path in _POLICY_LISTS and position:
                self.blank()
            self.entry("-", item, depth, f"{path}[]", item.span.line)

    def entry(self, head: str, value: TextNode, depth: int, path: str, line: int) -> None:
        """What a key or dash stands before, on its line if it fits."""
        self.flush(before=line, depth=depth)
        end = max(line, value.span.end_line if isinstance(value, ScalarNode) else _last_line(value))
        nothing = isinstance(value, ScalarNode) and value.kind == "null"
        flow = head if nothing else f"{head} {_flow(value)}"
        if (
            isinstance(value, ScalarNode)
            or _empty(value)
            or self._fits(flow, depth, path, line, end)
        ):
            self.line(depth, flow, end)
        elif head == "-" and isinstance(value, MapNode):
            self._item(value, depth, path)
        else:
            self.line(depth, head, line)
            deeper = depth + 1
            if isinstance(value, MapNode):
                self.map(value, deeper, path)
            else:
                self.list(value, deeper, path)

    def _item(self, value: MapNode, depth: int, path: str) -> None:
        """A map in a list: its first key stands behind the dash."""
        start = len(self.lines)
        self.map(value, depth + 1, path)
        indent = "  " * depth
        while self.lines[start].lstrip().startswith("#"):
            self.lines[start] = indent + self.lines[start].lstrip()
            start += 1
        self.lines[start] = f"{indent}- {self.lines[start][len(indent) + 2 :]}"

    def _fits(self, flow: str, depth: int, path: str, line: int, end: int) -> bool:
        inside = [c for c in self._comments if line <= c.line <= end]
        spread = any(c.alone for c in inside) or len(inside) > 1
        sections = depth == 0 or path.removesuffix("[]") in _POLICY_LISTS
        nested = path.count(".") == 1 and path.startswith("schema.") and "{" in flow
        return not (spread or sections or nested) and 2 * depth + len(flow) <= WIDTH

    def line(self, depth: int, text: str, last: int) -> None:
        """Write one line, with the comment that stood at its end."""
        trailing = [c for c in self._comments if not c.alone and c.line <= last]
        self._comments = [c for c in self._comments if c not in trailing]
        ends = "".join(f"  {comment.text}" for comment in trailing)
        self.lines.append("  " * depth + text + ends)

    def flush(self, before: int | None, depth: int) -> None:
        """Write the comments that stood on lines of their own before a line."""
        while self._comments and (before is None or self._comments[0].line < before):
            self.lines.append("  " * depth + self._comments.pop(0).text)

    def blank(self) -> None:
        """Set the next entry apart."""
        self.lines.append("")


def _last_line(node: MapNode | ListNode) -> int:
    """The line of the last thing in a node; a block's own span can reach past it."""
    return max((scalar.span.end_line for scalar in _scalars(node)), default=node.span.line)


def _empty(node: MapNode | ListNode) -> bool:
    return not (node.entries if isinstance(node, MapNode) else node.items)


def _flow(node: TextNode) -> str:
    match node:
        case ScalarNode():
            return _scalar(node)
        case ListNode(items=items):
            return f"[{', '.join(_flow(item) for item in items)}]"
        case MapNode(entries=entries):
            inner = ", ".join(f"{_scalar(key)}: {_flow(value)}" for key, value in entries)
            return f"{{{inner}}}"


def _scalar(node: ScalarNode) -> str:
    if node.kind == "null":
        return "null"
    if node.kind != "text":
        return node.text
    if _SAFE.fullmatch(node.text) and scalar_kind(node.text) == "text":
        return node.text
    if node.text.isprintable():
        return "'" + node.text.replace("'", "''") + "'"
    return '"' + "".join(_escaped(character) for character in node.text) + '"'


def _escaped(character: str) -> str:
    """A character as YAML and this reader take it between double quotes."""
    if character in '"\\':
        return "\\" + character
    if character in "\n\t":
        return {"\n": "\\n", "\t": "\\t"}[character]
    return character if character.isprintable() else f"\\U{ord(character):08x}"
