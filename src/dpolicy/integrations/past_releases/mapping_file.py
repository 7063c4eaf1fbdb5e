"""Mapping files: from which columns of a table the fields of a release are read.

A field names a column, or is `{column: …}` with translations of its values, a separator for several
values, a default for empty cells or the format of a date; or it is a constant, `{value: …}`. An
empty cell without a default leaves the field out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpolicy.errors import PolicyRejected
from dpolicy.integrations.past_releases.csv_text import DELIMITERS
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import (
    INVALID,
    ChoiceShape,
    MapShape,
    NumberShape,
    RecordField,
    RecordShape,
    TextShape,
    report_wrong_type,
)
from dpolicy.text.source_files import read_source
from dpolicy.text.spans import LocatedText, Report, Source
from dpolicy.text.yaml_reader import MapNode, ScalarNode, TextNode, read_nodes

#: Values of one release field, by the names in a release file.
FieldMap = Mapping[str, "FieldSource"]


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Field that is read from a column.

    `values` translates cells; a cell that is not in it is an error. With `separator` a cell has
    several values. `date_format` is the format of `strptime`.
    """

    column: LocatedText
    values: Mapping[str, ScalarNode] | None = None
    separator: str | None = None
    default: TextNode | None = None
    date_format: str | None = None


@dataclass(frozen=True, slots=True)
class ConstantSource:
    """Field with the same value in every row."""

    node: TextNode


FieldSource = ColumnSource | ConstantSource


@dataclass(frozen=True, slots=True)
class TableMapping:
    """Sources of the fields of a release, of its mechanism, and of the maps in a mechanism."""

    delimiter: str
    release: FieldMap
    mechanism: FieldMap
    kind: FieldSource
    parameters: FieldMap
    labels: FieldMap
    where: FieldMap
    time: FieldMap

    def sources(self) -> Iterator[FieldSource]:
        """Yield the sources of all fields."""
        yield self.kind
        maps = (self.release, self.mechanism, self.parameters, self.labels, self.where, self.time)
        for fields in maps:
            yield from fields.values()


@dataclass(frozen=True, slots=True)
class _AnyShape:
    """Shape of any node; its value is the node."""

    title: str = "a value"

    def read(self, node: TextNode, _: Report) -> Any:
        return node

    def schema(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class _ScalarShape:
    """Shape of a text, number or truth value; its value is the node."""

    title: str = "a text or a number"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.kind in ("text", "number", "bool"):
            return node
        return report_wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean"]}


@dataclass(frozen=True, slots=True)
class _ColumnShape:
    """Shape of the name of a column: any text on one line."""

    title: str = "the name of a column"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.kind in ("text", "number", "bool"):
            return node.located_text
        return report_wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean"]}


_COLUMN = RecordShape(
    "a column",
    {
        "column": RecordField(_ColumnShape(), required=True),
        "values": RecordField(MapShape(_ScalarShape(), "a map of values", key=_ColumnShape())),
        "separator": RecordField(TextShape()),
        "default": RecordField(_AnyShape()),
        "date-format": RecordField(TextShape()),
    },
    lambda v, _: ColumnSource(
        v["column"], v["values"], v["separator"], v["default"], v["date-format"]
    ),
)
_CONSTANT = RecordShape(
    "a constant",
    {"value": RecordField(_AnyShape(), required=True)},
    lambda v, _: ConstantSource(v["value"]),
)


@dataclass(frozen=True, slots=True)
class _SourceShape:
    """Shape of a field: the name of a column, `{column: …}` or `{value: …}`."""

    title: str = "a column or a constant"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, MapNode):
            return (_COLUMN if node.get("value") is None else _CONSTANT).read(node, report)
        name = _ColumnShape(self.title).read(node, report)
        return INVALID if name is INVALID else ColumnSource(name)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [_ColumnShape().schema(), _COLUMN.schema(), _CONSTANT.schema()]}


_SOURCE = _SourceShape()
_SOURCES = MapShape(_SOURCE, "a map of columns", key=_ColumnShape())
_MECHANISM = RecordShape(
    "`mechanism`",
    {
        "kind": RecordField(_SOURCE, required=True),
        "parameters": RecordField(_SOURCES, default={}),
    },
    lambda values, _: values,
)
_TIME = RecordShape(
    "`time`",
    {"from": RecordField(_SOURCE), "to": RecordField(_SOURCE)},
    lambda values, _: {key: source for key, source in values.items() if source is not None},
)

#: Fields of a release, and fields of its mechanism, that have one source.
_RELEASE_FIELDS = {"id": "release", "date": "released", "by": "by"}
_MECHANISM_FIELDS = ("name", "unit", "relation", "additive", "attributes")

MAPPING = RecordShape(
    "a mapping",
    {
        "mapping": RecordField(
            NumberShape("the version 1", least=Fraction(1), most=Fraction(1), whole=True),
            "version of the format",
            required=True,
        ),
        "delimiter": RecordField(ChoiceShape(DELIMITERS, "a delimiter"), default=","),
        "id": RecordField(_SOURCE, "id of the release", required=True),
        "date": RecordField(_SOURCE, "day on which the release happened"),
        "by": RecordField(_SOURCE, "author of the release"),
        **{name: RecordField(_SOURCE) for name in _MECHANISM_FIELDS},
        "labels": RecordField(_SOURCES, default={}),
        "where": RecordField(_SOURCES, default={}),
        "time": RecordField(_TIME, default={}),
        "mechanism": RecordField(_MECHANISM, required=True),
    },
    lambda values, _: _build_mapping(values),
)


def load_mapping(file: Path) -> TableMapping:
    """Return the mapping of a file. Raise `PolicyRejected` with all its errors."""
    diagnostics = DiagnosticCollector()
    mapping = parse_mapping(read_source(file), diagnostics)
    if mapping is None or diagnostics.errors:
        raise PolicyRejected(diagnostics.sorted_diagnostics)
    return mapping


def parse_mapping(source: Source, diagnostics: DiagnosticCollector) -> TableMapping | None:
    """Return the mapping of a text, or None if it has errors; they go to `diagnostics`."""
    node = read_nodes(source, diagnostics.report)
    mapping: Any = INVALID if node is None else MAPPING.read(node, diagnostics.report)
    return None if mapping is INVALID else mapping


def _build_mapping(values: Mapping[str, Any]) -> TableMapping:
    stated = {key: value for key, value in values.items() if value is not None}
    return TableMapping(
        delimiter=str(values["delimiter"]),
        release={name: stated[key] for key, name in _RELEASE_FIELDS.items() if key in stated},
        mechanism={key: stated[key] for key in _MECHANISM_FIELDS if key in stated},
        kind=values["mechanism"]["kind"],
        parameters=values["mechanism"]["parameters"],
        labels=values["labels"],
        where=values["where"],
        time=values["time"],
    )
