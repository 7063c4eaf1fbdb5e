"""The release format: the only description of a release in a file, over HTTP and in the ledger.

The shapes `RELEASE` and `MECHANISM` read the nodes of a file or an HTTP body and report all
problems with their positions (docs/releases.md). `value_check(RELEASE)` checks a recorded body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from dpolicy.errors import InvalidValue, PolicyRejected
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.releases.body import copy_body, mechanism_from_body, to_plain_body
from dpolicy.releases.regions import MAX_PARTITION_VALUES
from dpolicy.releases.release import Release, mark_parsed
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.plain_nodes import node_from_plain
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
from dpolicy.text.value_checks import ValueCheck, value_check
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

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def node_to_plain(node: TextNode) -> Any:
    """Convert a node to plain values: exact numbers, text, lists and maps."""
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


class _Parameters(NamedTuple):
    """Parameters of a mechanism as plain values, and the position to report problems at."""

    values: dict[str, Any]
    span: Span


@dataclass(frozen=True, slots=True)
class _ParametersShape:
    """A map of parameters. The shape reads any map: `parse_mechanism` checks the parameters."""

    title: str
    has_kind: bool

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        return _Parameters(node_to_plain(node), node.span)

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


@value_check.register
def _(shape: _ParametersShape) -> ValueCheck:
    if shape.has_kind:
        return lambda value: type(value) is dict and type(value.get("kind")) is str
    return lambda value: type(value) is dict


@dataclass(frozen=True, slots=True)
class _LabelShape:
    """One value of a label, or a list of values."""

    title: str = "a label's value, or a list of values"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ListNode):
            return NameShape(self.title).read(node, report)
        values = ListShape(NameShape()).read(node, report)
        return tuple(sorted({str(value) for value in values}))

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [NameShape().schema(), ListShape(NameShape()).schema()]}


@value_check.register
def _(_shape: _LabelShape) -> ValueCheck:
    is_value, is_list = value_check(NameShape()), value_check(ListShape(NameShape()))
    return lambda value: is_value(value) or is_list(value)


_INTEGER = NumberShape(
    "a whole number",
    least=Fraction(-MAX_PARTITION_VALUES),
    most=Fraction(MAX_PARTITION_VALUES),
    whole=True,
)
_RANGE = RecordShape(
    "a range",
    {"from": RecordField(_INTEGER, required=True), "to": RecordField(_INTEGER, required=True)},
    lambda v, _: (v["from"], v["to"]),
)
_PARTITION_VALUES = ListShape(NameShape(), least=1)


@dataclass(frozen=True, slots=True)
class _SelectionShape:
    """The selected part of a partition: a value, a list of values, or a range.

    The ledger records a single value as a list.
    """

    title: str = "a value, a list of values, or a range"

    def read(self, node: TextNode, report: Report) -> Any:
        match node:
            case MapNode():
                return _RANGE.read(node, report)
            case ListNode():
                values = _PARTITION_VALUES.read(node, report)
                if values is INVALID or not values:  # empty if no entry is valid
                    return INVALID
                return tuple(sorted(set(map(str, values))))
            case _:
                value = NameShape().read(node, report)
                return value if value is INVALID else (str(value),)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [NameShape().schema(), ListShape(NameShape()).schema(), _RANGE.schema()]}


@value_check.register
def _(_shape: _SelectionShape) -> ValueCheck:
    is_list, is_range = value_check(_PARTITION_VALUES), value_check(_RANGE)
    return lambda value: is_list(value) or is_range(value)


@dataclass(frozen=True, slots=True)
class _WhereShape:
    """A box (a selection per partition), or a list of boxes whose union is selected.

    The ledger records a single box as a list.
    """

    title: str = "a map of partitions, or a list of such maps"

    def read(self, node: TextNode, report: Report) -> Any:
        box_shape = MapShape(_SelectionShape(), self.title)
        if isinstance(node, ListNode):
            return ListShape(box_shape, least=1).read(node, report)
        box = box_shape.read(node, report)
        return box if box is INVALID else (box,)

    def schema(self) -> dict[str, Any]:
        box = MapShape(_SelectionShape()).schema()
        return {"anyOf": [box, {"type": "array", "items": box}]}


@value_check.register
def _(_shape: _WhereShape) -> ValueCheck:
    return value_check(ListShape(MapShape(_SelectionShape())))


@dataclass(frozen=True, slots=True)
class DateShape:
    """A date such as 2026-10-28."""

    title: str = "a date such as 2026-10-28"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ScalarNode) or not _DATE.fullmatch(node.text):
            return report_wrong_type(node, self.title, report)
        try:
            return date.fromisoformat(node.text)
        except ValueError:
            report("P009", f"there is no day `{node.text}`", node.span, None)
            return INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "format": "date"}


@value_check.register
def _(_shape: DateShape) -> ValueCheck:
    return _is_date


def _is_date(value: Any) -> bool:
    try:
        date.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return True


_TIME = RecordShape(
    "`time`",
    {
        "from": RecordField(DateShape(), "first day"),
        "to": RecordField(DateShape(), "last day"),
    },
    lambda v, _: {key: day.isoformat() for key, day in v.items() if day is not None},
)

MECHANISM: Shape = RecordShape(
    "a mechanism of a release",
    {
        "name": RecordField(NameShape(), "name in reports"),
        "mechanism": RecordField(
            _ParametersShape("a mechanism such as {kind: gaussian}", has_kind=True), required=True
        ),
        "unit": RecordField(NameShape(), "privacy unit of the sensitivity or loss"),
        "relation": RecordField(
            ChoiceShape(tuple(NeighbouringRelation), "a neighbouring relation")
        ),
        "additive": RecordField(BooleanShape(), "theory 5.3", default=False),
        "also": RecordField(
            MapShape(_ParametersShape("parameters for another unit", has_kind=False)), default={}
        ),
        "attributes": RecordField(
            ListShape(NameShape()), "all attributes that influence the output", default=()
        ),
        "labels": RecordField(MapShape(_LabelShape()), default={}),
        "where": RecordField(
            _WhereShape(), "selected values of partitions; default: all units", default=()
        ),
        "time": RecordField(_TIME, "days of the data; default: static data"),
    },
    lambda values, _: values,
)

RELEASE: Shape = RecordShape(
    "a release",
    {
        "release": RecordField(
            NameShape("an id"), "idempotency key, chosen by the client", required=True
        ),
        "by": RecordField(NameShape(), "author of the request", default=""),
        "utility": RecordField(
            NumberShape("a utility from 0 to 10¹²", least=Fraction(0), most=Fraction(10**12))
        ),
        "mechanisms": RecordField(
            ListShape(MECHANISM, "a list of mechanisms", least=1), required=True
        ),
    },
    lambda values, _: values,
)


def load_release(file: str | Path) -> Release:
    """Return the release of a file. Raise `PolicyRejected` with all its errors."""
    diagnostics = DiagnosticCollector()
    release = parse_release(read_source(Path(file)), diagnostics)
    return _require_valid(release, diagnostics)


def release_from_plain(body: Mapping[str, Any]) -> Release:
    """Return the release of a mapping of Python values, checked as strictly as a file.

    Raise `PolicyRejected` with all its errors; each names the path of its value.
    """
    diagnostics = DiagnosticCollector()
    node = node_from_plain(to_plain_body(body), "release", diagnostics.report)
    return _require_valid(release_from_node(node, diagnostics.report), diagnostics)


def snapshot_release(release: Release) -> Release:
    """Return a copy that shares no mutable value with the caller.

    The mechanisms of a parsed release are taken as they are. A release that was built by hand, or
    whose body was changed, is parsed from its body. Raise `PolicyRejected` with all its errors.
    """
    body = copy_body(release.body)
    if release.was_parsed_from(body):
        return mark_parsed(replace(release, body=body))
    return release_from_plain(body)


def release_with_author(release: Release, by: str) -> Release:
    """Return the release with `by` as its author; its mechanisms are not parsed again.

    Raise `PolicyRejected` if `by` is not a valid name.
    """
    if release.by == by:
        return release
    diagnostics = DiagnosticCollector()
    NameShape().read(node_from_plain(by, "release.by", diagnostics.report), diagnostics.report)
    changed = replace(release, by=by, body={**release.body, "by": by})
    _require_valid(changed, diagnostics)
    return mark_parsed(changed) if release.is_parsed else changed


def _require_valid(release: Release | None, diagnostics: DiagnosticCollector) -> Release:
    if release is None or diagnostics.errors:
        raise PolicyRejected(diagnostics.sorted_diagnostics)
    return release


def parse_release(source: Source, diagnostics: DiagnosticCollector) -> Release | None:
    """Return the release of a text, or None if it has errors; they go to `diagnostics`."""
    node = read_nodes(source, diagnostics.report)
    return None if node is None else release_from_node(node, diagnostics.report)


def release_from_node(node: TextNode, report: Report) -> Release | None:
    """Return the release of a node, or None after reporting all its errors.

    Each mechanism is parsed once. The result is marked as parsed (`Release.is_parsed`).
    """
    values: Any = RELEASE.read(node, report)
    if values is INVALID:
        return None
    bodies, requests = [], []
    for position, fields in enumerate(values["mechanisms"], 1):
        body = _mechanism_body(fields)
        bodies.append(body)
        request, problems = mechanism_from_body(body, position)
        for problem in problems:
            _report_problem(problem, fields["mechanism"].span, report)
        if request is not None:
            requests.append(request)
    if len(requests) < _count_mechanisms(node):
        return None
    release_id, by, utility = str(values["release"]), str(values["by"]), values["utility"]
    body = {
        "release": release_id,
        **({"by": by} if by else {}),
        **({} if utility is None else {"utility": utility}),
        "mechanisms": bodies,
    }
    return mark_parsed(Release(release_id, by, utility, tuple(requests), body))


def _mechanism_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain values of a mechanism; keys that the author left out are absent."""
    plain = {
        "name": fields["name"] and str(fields["name"]),
        "mechanism": fields["mechanism"].values,
        "unit": fields["unit"] and str(fields["unit"]),
        "relation": fields["relation"] and str(fields["relation"]),
        "additive": fields["additive"] or None,
        "also": {str(unit): parameters.values for unit, parameters in fields["also"].items()},
        "attributes": sorted({str(name) for name in fields["attributes"]}),
        "labels": {str(name): _plain_label(value) for name, value in fields["labels"].items()},
        "where": [
            {str(partition): _plain_selection(value) for partition, value in box.items()}
            for box in fields["where"]
        ],
        "time": fields["time"],
    }
    return {key: value for key, value in plain.items() if value or key == "mechanism"}


def _plain_label(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value)


def _plain_selection(value: Any) -> Any:
    """Return a range as a map of its ends, and listed values as a list."""
    if isinstance(value[0], int):
        return {"from": Fraction(value[0]), "to": Fraction(value[1])}
    return list(value)


def _count_mechanisms(node: TextNode) -> int:
    """Return how many mechanisms a text lists, with those that the shape dropped as invalid."""
    listed = node.get("mechanisms") if isinstance(node, MapNode) else None
    return len(listed.items) if isinstance(listed, ListNode) else 0


def _report_problem(problem: InvalidValue, span: Span, report: Report) -> None:
    message, _, help_ = problem.message.partition("; help: ")
    report(problem.code, message, span, help_ or None)
