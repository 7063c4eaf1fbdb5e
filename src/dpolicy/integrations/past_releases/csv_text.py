"""CSV text (RFC 4180) → rows of nodes with spans, so that a diagnostic points to its cell.

Spaces around a cell do not count, and an empty cell is absent. A cell is read like an unquoted
scalar of YAML: `1e-7` is a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from dpolicy.text.spans import Report, Source, Span
from dpolicy.text.syntax_errors import report_hidden_character
from dpolicy.text.yaml_reader import MAX_BYTES, MAX_NODES, ScalarNode, number_node, scalar_kind

#: Characters that may separate cells.
DELIMITERS = (",", ";", "\t", "|")

_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_BREAK = re.compile(r"\r\n|\r|\n")


class _Cell(NamedTuple):
    """Text of a cell with its position; `ends_row` is true for the last cell of a row."""

    text: str
    span: Span
    ends_row: bool


def read_csv(source: Source, delimiter: str, report: Report) -> list[list[ScalarNode]]:
    """Return the rows of a CSV text as nodes; report why a text is unreadable and return no rows.

    The first row has the names of the columns. A line without text is skipped.
    """
    start = Span(source, 1, 1, 1, 2)
    if len(source.text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES:,} bytes"
        report("P002", message, start, "split it into several files")
        return []
    if report_hidden_character(source, report):
        return []
    rows: list[list[ScalarNode]] = []
    row: list[ScalarNode] = []
    for count, cell in enumerate(_split_cells(source, delimiter, report)):
        if count >= MAX_NODES:
            message = f"the file has more than {MAX_NODES:,} cells"
            report("P002", message, cell.span, "split it into several files")
            return []
        row.append(cell_node(cell.text, cell.span, report))
        if cell.ends_row:
            if any(node.kind != "null" for node in row):
                rows.append(row)
            row = []
    return rows


def cell_node(text: str, span: Span, report: Report) -> ScalarNode:
    """Return the node of a cell; report a number with too many digits."""
    stripped = text.strip()
    kind = scalar_kind(stripped)
    if kind == "number":
        return number_node(stripped, span, report)
    return ScalarNode(span, stripped, "null" if not stripped else kind)


def _split_cells(source: Source, delimiter: str, report: Report) -> Iterator[_Cell]:
    """Yield the cells of all rows; report a quote that is not closed, and stop there."""
    text, position, line, line_start = source.text, 0, 1, 0
    plain = re.compile(rf"[^{re.escape(delimiter)}\r\n]*")
    while position < len(text):
        column = position - line_start + 1
        if text[position] == '"':
            quoted = _QUOTED.match(text, position)
            if quoted is None:
                span = Span(source, line, column, line, column + 1)
                report("P001", 'a quote `"` is not closed', span, 'write `""` for a quote in text')
                return
            value, end = quoted[1].replace('""', '"'), quoted.end()
        else:
            match = plain.match(text, position)
            value, end = (match[0], match.end()) if match else ("", position)
        span = Span(source, line, column, line, max(column + 1, column + end - position))
        for inner in _BREAK.finditer(text, position, end):
            line, line_start = line + 1, inner.end()
        line_break = _BREAK.match(text, end)
        if line_break is None and end < len(text) and text[end] != delimiter:
            place = Span(source, line, end - line_start + 1, line, end - line_start + 2)
            report("P001", f"text after a closing quote: `{text[end]}`", place, "quote all of it")
            return
        ends_row = line_break is not None or end == len(text)
        yield _Cell(value, span, ends_row)
        position = line_break.end() if line_break else end + 1
        if line_break:
            line, line_start = line + 1, line_break.end()
        elif position == len(text):  # a delimiter ends the file
            last = Span(source, line, position - line_start + 1, line, position - line_start + 2)
            yield _Cell("", last, True)
