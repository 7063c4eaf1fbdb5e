"""Rows of a table and a mapping → nodes of releases, which the release format reads.

Rows with the same id are mechanisms of one release. Each node keeps the position of its cell, so
that an error of the release format names file, row and column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from dpolicy.integrations.past_releases.mapping_file import (
    ColumnSource,
    ConstantSource,
    FieldMap,
    FieldSource,
    TableMapping,
)
from dpolicy.integrations.past_releases.tables import ImportTable
from dpolicy.text.did_you_mean import suggest
from dpolicy.text.spans import Report, Span
from dpolicy.text.yaml_reader import ListNode, MapNode, ScalarNode, TextNode


def release_nodes(table: ImportTable, mapping: TableMapping, report: Report) -> list[MapNode]:
    """Return the nodes of the releases of a table, in the order of their first rows.

    Report all columns that the table does not have, and all cells without a translation.
    """
    if not _has_columns(table, mapping, report):
        return []
    by_id: dict[str, list[MapNode]] = {}
    for number, row in enumerate(table.rows):
        node = _release_node(row, mapping, report)
        stated = node.get("release")
        name = stated.text if isinstance(stated, ScalarNode) else f"\n{number}"  # reported later
        by_id.setdefault(name, []).append(node)
    return [_merge_rows(nodes, report) for nodes in by_id.values()]


def _has_columns(table: ImportTable, mapping: TableMapping, report: Report) -> bool:
    """Report each column of a mapping that the table does not have; return whether it has all."""
    if not table.rows:
        return not table.columns
    named = [source.column for source in mapping.sources() if isinstance(source, ColumnSource)]
    missing = [name for name in named if name not in table.columns]
    for name in missing:
        message = f"`{table.span.source.name}` has no column `{name}`"
        report("P006", message, name.span, suggest(name, table.columns))
    return not missing


def _release_node(row: MapNode, mapping: TableMapping, report: Report) -> MapNode:
    """Return the node of a release with one mechanism."""
    mechanism = (
        *_entries(mapping.mechanism, row, report),
        *_entry("mechanism", _mechanism_node(row, mapping, report)),
        *_entry("labels", _map_node(mapping.labels, row, report)),
        *_entry("where", _map_node(mapping.where, row, report)),
        *_entry("time", _map_node(mapping.time, row, report)),
    )
    mechanisms = ListNode(row.span, (MapNode(row.span, mechanism),))
    return MapNode(
        row.span,
        (*_entries(mapping.release, row, report), *_entry("mechanisms", mechanisms)),
    )


def _mechanism_node(row: MapNode, mapping: TableMapping, report: Report) -> MapNode:
    kind = _read_field(mapping.kind, row, report)
    span = row.span if kind is None else kind.span
    entries = (*_entry("kind", kind), *_entries(mapping.parameters, row, report))
    if kind is None:
        report("P008", "the row has no kind of mechanism", span, None)
    return MapNode(span, entries)


def _map_node(fields: FieldMap, row: MapNode, report: Report) -> MapNode | None:
    entries = tuple(_entries(fields, row, report))
    return MapNode(entries[0][1].span, entries) if entries else None


def _entries(
    fields: FieldMap, row: MapNode, report: Report
) -> Iterator[tuple[ScalarNode, TextNode]]:
    for name, source in fields.items():
        yield from _entry(str(name), _read_field(source, row, report))


def _entry(name: str, node: TextNode | None) -> Iterator[tuple[ScalarNode, TextNode]]:
    if node is not None:
        yield ScalarNode(node.span, name, "text", '"'), node


def _read_field(source: FieldSource, row: MapNode, report: Report) -> TextNode | None:
    """Return the node of a field in a row; None if its cell is empty and has no default."""
    if isinstance(source, ConstantSource):
        return source.node
    cell = row.get(source.column)
    if cell is None:
        return source.default
    if source.separator is not None and isinstance(cell, ScalarNode):
        parts = [part.strip() for part in cell.text.split(source.separator)]
        cell = ListNode(cell.span, tuple(ScalarNode(cell.span, p, "text") for p in parts if p))
    if isinstance(cell, ListNode):
        return ListNode(cell.span, tuple(_translate(item, source, report) for item in cell.items))
    return _translate(cell, source, report)


def _translate(cell: TextNode, source: ColumnSource, report: Report) -> TextNode:
    """Return the translation of a cell; report a cell that has none."""
    if not isinstance(cell, ScalarNode):
        return cell
    if source.values is not None:
        value = source.values.get(cell.text)
        if value is None:
            message = f"the mapping has no value for `{cell.text[:40]}` of `{source.column}`"
            report("P012", message, cell.span, suggest(cell.text, source.values))
            return ScalarNode(cell.span, cell.text, "invalid")
        cell = ScalarNode(cell.span, value.text, value.kind, value.style)
    return cell if source.date_format is None else _read_date(cell, source.date_format, report)


def _read_date(cell: ScalarNode, date_format: str, report: Report) -> ScalarNode:
    """Return a date as 2024-03-01; report a cell that does not have the format."""
    try:
        day = datetime.strptime(cell.text, date_format).date()
    except (ValueError, re.error):  # `strptime` compiles the format to a regular expression
        message = f"`{cell.text[:40]}` is not a date of the format `{date_format}`"
        report("P007", message, cell.span, None)
        return ScalarNode(cell.span, cell.text, "invalid")
    return ScalarNode(cell.span, day.isoformat(), "text")


def _merge_rows(nodes: list[MapNode], report: Report) -> MapNode:
    """Return one release with the mechanisms of several rows; report rows that contradict."""
    first = nodes[0]
    for key in ("released", "by"):
        own = first.get(key)
        for node in nodes[1:]:
            other = node.get(key)
            if _text(own) != _text(other):
                word = {"released": "dates", "by": "authors"}[key]
                name = _text(first.get("release"))
                span: Span = node.span if other is None else other.span
                report("P010", f"rows of release `{name}` state different {word}", span, None)
    lists = [node.get("mechanisms") for node in nodes]
    mechanisms = tuple(item for part in lists if isinstance(part, ListNode) for item in part.items)
    others = tuple(entry for entry in first.entries if entry[0].text != "mechanisms")
    return MapNode(first.span, (*others, *_entry("mechanisms", ListNode(first.span, mechanisms))))


def _text(node: TextNode | None) -> str | None:
    return node.text if isinstance(node, ScalarNode) else None
