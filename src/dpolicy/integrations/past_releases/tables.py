"""Tables of past releases: CSV, lists of maps in YAML or JSON, and Parquet → rows of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpolicy.errors import OperationRejected
from dpolicy.integrations.past_releases.csv_text import DELIMITERS, cell_node, read_csv
from dpolicy.text.shapes import report_wrong_type
from dpolicy.text.source_files import read_source, unreadable_file_error
from dpolicy.text.spans import Report, Source, Span
from dpolicy.text.yaml_reader import (
    MAX_NODES,
    ListNode,
    MapNode,
    ScalarNode,
    TextNode,
    read_nodes,
)


@dataclass(frozen=True, slots=True)
class ImportTable:
    """Rows of a file. A row has an entry for each cell that is not empty.

    `columns` has the position of the name of each column.
    """

    columns: Mapping[str, Span]
    rows: tuple[MapNode, ...]
    span: Span


def read_table(file: Path, delimiter: str, report: Report) -> ImportTable | None:
    """Return the table of a file by the end of its name, or None after reporting its errors."""
    if file.suffix.lower() == ".parquet":
        return _read_parquet(file, report)
    source = read_source(file)
    if file.suffix.lower() in (".csv", ".tsv", ".txt"):
        return _table_from_cells(source, read_csv(source, delimiter, report), delimiter, report)
    return _table_from_list(source, report)


def _table_from_cells(
    source: Source, rows: list[list[ScalarNode]], delimiter: str, report: Report
) -> ImportTable | None:
    """Return a table whose first row has the names of the columns."""
    if not rows:
        return None
    header, *body = rows
    columns: dict[str, Span] = {}
    for cell in header:
        if cell.text in columns:
            report("P010", f"the column `{cell.text[:40]}` occurs twice", cell.span, "rename one")
        columns.setdefault(cell.text, cell.span)
    others = [other for other in DELIMITERS if other != delimiter and other in header[0].text]
    if len(header) == 1 and others:
        help_ = f"state `delimiter: {others[0]!r}` in the mapping"
        report("P001", f"the file has one column with `{delimiter}`", header[0].span, help_)
        return None
    nodes = []
    for row in body:
        if len(row) != len(header):
            span = row[min(len(row), len(header)) - 1].span
            message = f"the row has {len(row)} cells, and the header {len(header)}"
            report("P007", message, span, "quote a cell that contains the delimiter")
            continue
        cells = zip(header, row, strict=True)
        entries = tuple((name, cell) for name, cell in cells if cell.kind != "null")
        nodes.append(MapNode(row[0].span, entries))
    return ImportTable(columns, tuple(nodes), header[0].span)


def _table_from_list(source: Source, report: Report) -> ImportTable | None:
    """Return the table of a list of maps; each key is a column."""
    node = read_nodes(source, report)
    if node is None:
        return None
    if not isinstance(node, ListNode):
        report_wrong_type(node, "a list of rows", report, "write one map for each release")
        return None
    rows = [item for item in node.items if isinstance(item, MapNode)]
    for item in node.items:
        if not isinstance(item, MapNode):
            report_wrong_type(item, "a row", report)
    columns = {key.text: key.span for row in reversed(rows) for key, _ in row.entries}
    return ImportTable(columns, tuple(map(_without_empty_cells, rows)), node.span)


def _without_empty_cells(row: MapNode) -> MapNode:
    def is_empty(node: TextNode) -> bool:
        return isinstance(node, ScalarNode) and (node.kind == "null" or not node.text)

    return MapNode(row.span, tuple((key, cell) for key, cell in row.entries if not is_empty(cell)))


def _read_parquet(file: Path, report: Report) -> ImportTable:
    """Return the table of a Parquet file; its rows have numbers instead of lines.

    Raise `OperationRejected` if Polars is not installed.
    """
    if find_spec("polars") is None:
        raise OperationRejected(f"reading `{file}` needs Polars: pip install 'dpolicy[polars]'")
    columns, cells = _read_frame(file)
    source = Source(str(file), "")
    if len(cells) * max(1, len(columns)) > MAX_NODES:
        message = f"the file has more than {MAX_NODES:,} cells"
        report("P002", message, Span(source, 1, 1, 1, 2), "split it into several files")
        cells = []
    names = [
        ScalarNode(Span(source, 1, number, 1, number + 1), name, "text")
        for number, name in enumerate(columns, 1)
    ]
    rows = []
    for line, row in enumerate(cells, 1):
        entries = [
            (name, _value_node(value, Span(source, line, column, line, column + 1), report))
            for column, (name, value) in enumerate(zip(names, row, strict=True), 1)
            if value is not None and value != ""
        ]
        rows.append(MapNode(Span(source, line, 1, line, 2), tuple(entries)))
    return ImportTable({n.text: n.span for n in names}, tuple(rows), Span(source, 1, 1, 1, 2))


def _read_frame(file: Path) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and rows of a Parquet file; of one that is too large, the first rows."""
    import polars

    try:
        frame = polars.read_parquet(file, n_rows=MAX_NODES + 1)
        rows = frame.head(MAX_NODES // max(1, frame.width) + 1).rows()
    except OSError as error:
        raise unreadable_file_error(error, file) from None
    # Polars panics for some damaged files, and for values that Python cannot have.
    except (
        *(polars.exceptions.PolarsError, polars.exceptions.PanicException),
        *(OverflowError, ValueError),
    ) as error:
        raise OperationRejected(f"`{file}` is not a readable Parquet file: {error}") from None
    return frame.columns, rows


def _value_node(value: object, span: Span, report: Report) -> TextNode:
    """Return the node of a value of a Parquet file: a list, or the text of the value."""
    if isinstance(value, list):
        return ListNode(span, tuple(_value_node(item, span, report) for item in value))
    if isinstance(value, bool):
        return ScalarNode(span, "true" if value else "false", "bool")
    return cell_node(str(value), span, report)
