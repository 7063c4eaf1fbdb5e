"""A release file → the release it asks for, with every mistake located (docs/releases.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpolicy.errors import InvalidValue, PolicyRejected
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.releases.body import mechanism_from_body
from dpolicy.releases.regions import MAX_PARTITION_VALUES
from dpolicy.releases.release import Release
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import (
    INVALID,
    BooleanShape,
    ChoiceShape,
    ListShape,
    MapShape,
    NameShape,
    NumberShape,
    RecordField,
    RecordShape,
    Shape,
    report_wrong_type,
)
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import (
    ListNode,
    MapNode,
    Report,
    ScalarNode,
    Source,
    Span,
    TextNode,
    read_nodes,
)

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def node_to_plain(node: TextNode) -> Any:
    """A node as plain values: exact numbers, text, lists and maps."""
    match node:
        case MapNode(entries=entries):
            return {key.text: node_to_plain(value) for key, value in entries}
        case ListNode(items=items):
            return [node_to_plain(item) for item in items]
        case ScalarNode(kind="number"):
            return node.number
        case ScalarNode(kind="bool", text=text):
            return text == "true"
        case ScalarNode(kind="null"):
            return None
        case ScalarNode(text=text):
            return text


@dataclass(frozen=True, slots=True)
class _Plain:
    """Any map, as plain values with its place: its family checks what is in it."""

    title: str

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        return node_to_plain(node), node.span

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


@dataclass(frozen=True, slots=True)
class _LabelValue:
    """A value, or a list of them."""

    title: str = "a label's value, or a list of values"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ListNode):
            return NameShape(self.title).read(node, report)
        values = ListShape(NameShape()).read(node, report)
        return tuple(sorted({str(value) for value in values}))

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [NameShape().schema(), ListShape(NameShape()).schema()]}


_WHOLE = NumberShape(
    "a whole number",
    least=Fraction(-MAX_PARTITION_VALUES),
    most=Fraction(MAX_PARTITION_VALUES),
    whole=True,
)
_RANGE = RecordShape(
    "a range",
    {"from": RecordField(_WHOLE, required=True), "to": RecordField(_WHOLE, required=True)},
    lambda v, _: (v["from"], v["to"]),
)


@dataclass(frozen=True, slots=True)
class _Selected:
    """What is selected of a partition: a value, values, or a range."""

    title: str = "a value, a list of values, or a range"

    def read(self, node: TextNode, report: Report) -> Any:
        match node:
            case MapNode():
                return _RANGE.read(node, report)
            case ListNode():
                values = ListShape(NameShape(), least=1).read(node, report)
                some = values is not INVALID and values  # none is left if each was wrong
                return tuple(sorted(set(map(str, values)))) if some else INVALID
            case _:
                value = NameShape().read(node, report)
                return value if value is INVALID else (str(value),)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [NameShape().schema(), ListShape(NameShape()).schema(), _RANGE.schema()]}


@dataclass(frozen=True, slots=True)
class _Where:
    """One box, or a list of boxes whose union is meant."""

    title: str = "a map of partitions, or a list of such maps"

    def read(self, node: TextNode, report: Report) -> Any:
        box = MapShape(_Selected(), self.title)
        if isinstance(node, ListNode):
            return ListShape(box, least=1).read(node, report)
        read = box.read(node, report)
        return read if read is INVALID else (read,)

    def schema(self) -> dict[str, Any]:
        box = MapShape(_Selected()).schema()
        return {"anyOf": [box, {"type": "array", "items": box}]}


@dataclass(frozen=True, slots=True)
class DateShape:
    """A date such as 2026-10-28, in a release or elsewhere."""

    title: str = "a date such as 2026-10-28"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ScalarNode) or not _DAY.fullmatch(node.text):
            return report_wrong_type(node, self.title, report)
        try:
            return date.fromisoformat(node.text)
        except ValueError:
            report("P009", f"there is no day `{node.text}`", node.span, None)
            return INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "format": "date"}


_TIME = RecordShape(
    "`time`",
    {
        "from": RecordField(DateShape(), "the first day"),
        "to": RecordField(DateShape(), "the last day"),
    },
    lambda v, _: {key: day.isoformat() for key, day in v.items() if day is not None},
)

MECHANISM: Shape = RecordShape(
    "a mechanism of a release",
    {
        "name": RecordField(NameShape(), "for reports"),
        "mechanism": RecordField(_Plain("a mechanism such as {kind: gaussian}"), required=True),
        "unit": RecordField(NameShape(), "what the sensitivity or loss is stated for"),
        "relation": RecordField(
            ChoiceShape(tuple(NeighbouringRelation), "a neighbouring relation")
        ),
        "additive": RecordField(BooleanShape(), "theory 5.3", default=False),
        "also": RecordField(MapShape(_Plain("parameters for another unit")), default={}),
        "attributes": RecordField(
            ListShape(NameShape()), "all that influence the output", default=()
        ),
        "labels": RecordField(MapShape(_LabelValue()), default={}),
        "where": RecordField(_Where(), "left out: everybody", default=()),
        "time": RecordField(_TIME, "left out: static data"),
    },
    lambda values, span: {**values, "span": span},
)

RELEASE: Shape = RecordShape(
    "a release",
    {
        "release": RecordField(NameShape("an id"), "chosen by the client", required=True),
        "by": RecordField(NameShape(), "who asks", default=""),
        "utility": RecordField(
            NumberShape("a utility from 0 to 10¹²", least=Fraction(0), most=Fraction(10**12))
        ),
        "mechanisms": RecordField(
            ListShape(MECHANISM, "a list of mechanisms", least=1), required=True
        ),
    },
    lambda values, _: values,
)


def load_release(file: Path) -> Release:
    """The release of a file. Raises `PolicyRejected` with every mistake in it."""
    found = DiagnosticCollector()
    release = parse_release(read_source(file), found)
    if release is None or found.errors:
        raise PolicyRejected(found.sorted_diagnostics)
    return release


def parse_release(source: Source, diagnostics: DiagnosticCollector) -> Release | None:
    """The release that a text asks for; mistakes go to `found`."""
    node = read_nodes(source, diagnostics.report)
    return None if node is None else release_from_node(node, diagnostics.report)


def release_from_node(node: TextNode, diagnostics: Report) -> Release | None:
    """The release that a node describes; mistakes go to `found`."""
    values: Any = RELEASE.read(node, diagnostics)
    if values is INVALID:
        return None
    bodies = [_body(said) for said in values["mechanisms"]]
    requests, wrong = [], False
    for position, said in enumerate(values["mechanisms"], 1):
        request, problems = mechanism_from_body(bodies[position - 1], position)
        requests += [request] if request else []
        for problem in problems:
            wrong = True
            _report(problem, said["mechanism"][1], diagnostics)
    if wrong or len(requests) < _count(node):
        return None
    name, by, utility = str(values["release"]), str(values["by"]), values["utility"]
    said_by = {"by": by} if by else {}
    said_utility = {} if utility is None else {"utility": utility}
    body = {"release": name, **said_by, **said_utility, "mechanisms": bodies}
    return Release(name, by, utility, tuple(requests), body)


def _body(fields: dict[str, Any]) -> dict[str, Any]:
    """A mechanism as plain values, without what was left out."""
    plain_parts = {
        "name": fields["name"] and str(fields["name"]),
        "mechanism": fields["mechanism"][0],
        "unit": fields["unit"] and str(fields["unit"]),
        "relation": fields["relation"] and str(fields["relation"]),
        "additive": fields["additive"] or None,
        "also": {str(unit): changes for unit, (changes, _) in fields["also"].items()},
        "attributes": sorted({str(name) for name in fields["attributes"]}),
        "labels": {str(k): _label(v) for k, v in fields["labels"].items()},
        "where": [{str(k): _selected(v) for k, v in box.items()} for box in fields["where"]],
        "time": fields["time"],
    }
    return {key: value for key, value in plain_parts.items() if value or key == "mechanism"}


def _label(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value)


def _selected(value: Any) -> Any:
    """A range keeps its ends; anything else is a list of values."""
    if isinstance(value[0], int):
        return {"from": Fraction(value[0]), "to": Fraction(value[1])}
    return list(value)


def _count(node: TextNode) -> int:
    """How many mechanisms a text lists; those that are wrong were left out while reading."""
    listed = node.get("mechanisms") if isinstance(node, MapNode) else None
    return len(listed.items) if isinstance(listed, ListNode) else 0


def _report(problem: InvalidValue, span: Span, diagnostics: Report) -> None:
    message, _, help_ = problem.message.partition("; help: ")
    diagnostics(problem.code, message, span, help_ or None)
