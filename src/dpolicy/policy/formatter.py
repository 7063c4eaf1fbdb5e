"""Formatter of policy files.

The formatter keeps the order of entries and all comments. It indents by two spaces, puts one blank
line between sections and between policies, and writes maps and lists below the level of sections
on one line if they fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dpolicy.text.yaml_reader import ListNode, MapNode, ScalarNode, Source, TextNode, scalar_kind

#: Maximum line length; a longer map or list is written over several lines.
WIDTH = 100

#: Text that needs no quotes, not even inside `{}` and `[]`; it can end in a percent sign.
_SAFE = re.compile(r"[A-Za-z0-9_./]+[A-Za-z0-9_./+-]*( [A-Za-z0-9_./+-]+)*( ?%)?")

#: Lists of policies, which are always written over several lines.
_POLICY_LISTS = ("policies", "each-release")


def format_text(source: Source, root: TextNode) -> str:
    """Return the formatted text of a document; `root` is its node tree."""
    writer = _Writer(list(_find_comments(source, root)))
    if isinstance(root, MapNode):
        writer.write_map(root, depth=0, path="")
    elif isinstance(root, ListNode):
        writer.write_list(root, depth=0, path="")
    else:
        writer.write_line(0, _format_scalar(root), root.span.line)
    writer.write_comments(before=None, depth=0)
    return "\n".join(writer.lines).strip("\n") + "\n"


@dataclass(frozen=True, slots=True)
class _Comment:
    """Comment of a source; `alone` if its line contains nothing else."""

    line: int
    text: str
    alone: bool


def _find_comments(source: Source, root: TextNode) -> Iterator[_Comment]:
    """Yield the comments: `#` outside of scalars, at the start of a line or after a space."""
    scalar_columns: dict[int, list[tuple[int, int]]] = {}
    for scalar in _walk_scalars(root):
        span = scalar.span
        for number in range(span.line, span.end_line + 1):
            first = span.column if number == span.line else 0
            last = span.end_column if number == span.end_line else 10**9
            scalar_columns.setdefault(number, []).append((first, last))
    for number, line in enumerate(source.lines, 1):
        for match in re.finditer(r"(?:^|(?<=\s))#", line):
            column = match.start() + 1
            spans = scalar_columns.get(number, ())
            if not any(first <= column < last for first, last in spans):
                before = line[: match.start()].strip()
                yield _Comment(number, line[match.start() :].rstrip(), not before)
                break


def _walk_scalars(node: TextNode) -> Iterator[ScalarNode]:
    match node:
        case ScalarNode():
            yield node
        case ListNode(items=items):
            for item in items:
                yield from _walk_scalars(item)
        case MapNode(entries=entries):
            for key, value in entries:
                yield key
                yield from _walk_scalars(value)


class _Writer:
    """Writer of nodes, line by line, that keeps each comment with its line."""

    def __init__(self, comments: list[_Comment]) -> None:
        self._comments = comments
        self.lines: list[str] = []

    def write_map(self, node: MapNode, depth: int, path: str) -> None:
        """Write the entries of a map; `path` is the dotted path of the map in the document."""
        for position, (key, value) in enumerate(node.entries):
            if depth == 0 and position:
                self._separate_sections(node.entries[position - 1][1], value)
            inner = f"{path}.{key.text}" if path else key.text
            self.write_entry(f"{_format_scalar(key)}:", value, depth, inner, key.span.line)

    def _separate_sections(self, before: TextNode, value: TextNode) -> None:
        """Write a blank line, except between two scalars at the top of a file."""
        if not (isinstance(before, ScalarNode) and isinstance(value, ScalarNode)):
            self.lines.append("")

    def write_list(self, node: ListNode, depth: int, path: str) -> None:
        """Write the items of a list, with blank lines between policies."""
        for position, item in enumerate(node.items):
            if path in _POLICY_LISTS and position:
                self.lines.append("")
            self.write_entry("-", item, depth, f"{path}[]", item.span.line)

    def write_entry(self, head: str, value: TextNode, depth: int, path: str, line: int) -> None:
        """Write a key or dash (`head`) and its value, on one line if they fit."""
        self.write_comments(before=line, depth=depth)
        end = max(line, value.span.end_line if isinstance(value, ScalarNode) else _last_line(value))
        is_null = isinstance(value, ScalarNode) and value.kind == "null"
        flow = head if is_null else f"{head} {_format_flow(value)}"
        if (
            isinstance(value, ScalarNode)
            or _is_empty(value)
            or self._fits(flow, depth, path, line, end)
        ):
            self.write_line(depth, flow, end)
        elif head == "-" and isinstance(value, MapNode):
            self._write_map_item(value, depth, path)
        else:
            self.write_line(depth, head, line)
            if isinstance(value, MapNode):
                self.write_map(value, depth + 1, path)
            else:
                self.write_list(value, depth + 1, path)

    def _write_map_item(self, value: MapNode, depth: int, path: str) -> None:
        """Write a map in a list, with its first key on the line of the dash."""
        start = len(self.lines)
        self.write_map(value, depth + 1, path)
        indent = "  " * depth
        while self.lines[start].lstrip().startswith("#"):
            self.lines[start] = indent + self.lines[start].lstrip()
            start += 1
        self.lines[start] = f"{indent}- {self.lines[start][len(indent) + 2 :]}"

    def _fits(self, flow: str, depth: int, path: str, line: int, end: int) -> bool:
        inside = [c for c in self._comments if line <= c.line <= end]
        has_own_comments = any(c.alone for c in inside) or len(inside) > 1
        is_section = depth == 0 or path.removesuffix("[]") in _POLICY_LISTS
        is_nested = path.count(".") == 1 and path.startswith("schema.") and "{" in flow
        if has_own_comments or is_section or is_nested:
            return False
        return 2 * depth + len(flow) <= WIDTH

    def write_line(self, depth: int, text: str, last: int) -> None:
        """Write a line and the trailing comments of the source up to line `last`."""
        trailing = [c for c in self._comments if not c.alone and c.line <= last]
        self._comments = [c for c in self._comments if c not in trailing]
        ends = "".join(f"  {comment.text}" for comment in trailing)
        self.lines.append("  " * depth + text + ends)

    def write_comments(self, before: int | None, depth: int) -> None:
        """Write the remaining comments above source line `before`; all of them if it is None."""
        while self._comments and (before is None or self._comments[0].line < before):
            self.lines.append("  " * depth + self._comments.pop(0).text)


def _last_line(node: MapNode | ListNode) -> int:
    """Return the last line of the scalars in a node; the span of a block can end after it."""
    return max((scalar.span.end_line for scalar in _walk_scalars(node)), default=node.span.line)


def _is_empty(node: MapNode | ListNode) -> bool:
    return not (node.entries if isinstance(node, MapNode) else node.items)


def _format_flow(node: TextNode) -> str:
    """Return a node on one line, in the flow style of YAML."""
    match node:
        case ScalarNode():
            return _format_scalar(node)
        case ListNode(items=items):
            return f"[{', '.join(_format_flow(item) for item in items)}]"
        case MapNode(entries=entries):
            pairs = [f"{_format_scalar(key)}: {_format_flow(value)}" for key, value in entries]
            return f"{{{', '.join(pairs)}}}"


def _format_scalar(node: ScalarNode) -> str:
    if node.kind == "null":
        return "null"
    if node.kind != "text":
        return node.text
    if _SAFE.fullmatch(node.text) and scalar_kind(node.text) == "text":
        return node.text
    if node.text.isprintable():
        return "'" + node.text.replace("'", "''") + "'"
    return '"' + "".join(_escape(character) for character in node.text) + '"'


def _escape(character: str) -> str:
    """Escape a character for a double-quoted YAML scalar."""
    if character in '"\\':
        return "\\" + character
    if character in "\n\t":
        return {"\n": "\\n", "\t": "\\t"}[character]
    return character if character.isprintable() else f"\\U{ord(character):08x}"
