"""A release file → the release it asks for, with every mistake located (docs/releases.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpolicy.errors import InvalidValue, PolicyRejected
from dpolicy.language.diagnostics import Findings
from dpolicy.language.parser import read_source
from dpolicy.language.schema_shapes import MAX_PARTITION
from dpolicy.language.shape import (
    INVALID,
    Choice,
    Field,
    Flag,
    ListOf,
    MapOf,
    Name,
    Number,
    Record,
    Shape,
    wrong_type,
)
from dpolicy.language.source import List, Map, Node, Report, Scalar, Source, Span, read_nodes
from dpolicy.privacy.units import Relation
from dpolicy.releases.body import mechanism_of
from dpolicy.releases.request import Release

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def plain(node: Node) -> Any:
    """A node as plain values: exact numbers, text, lists and maps."""
    match node:
        case Map(entries=entries):
            return {key.text: plain(value) for key, value in entries}
        case List(items=items):
            return [plain(item) for item in items]
        case Scalar(kind="number"):
            return node.number
        case Scalar(kind="bool", text=text):
            return text == "true"
        case Scalar(kind="null"):
            return None
        case Scalar(text=text):
            return text


@dataclass(frozen=True, slots=True)
class _Plain:
    """Any map, as plain values with its place: its family checks what is in it."""

    title: str

    def read(self, node: Node, report: Report) -> Any:
        if not isinstance(node, Map):
            return wrong_type(node, self.title, report)
        return plain(node), node.span

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


@dataclass(frozen=True, slots=True)
class _LabelValue:
    """A value, or a list of them."""

    title: str = "a label's value, or a list of values"

    def read(self, node: Node, report: Report) -> Any:
        if not isinstance(node, List):
            return Name(self.title).read(node, report)
        values = ListOf(Name()).read(node, report)
        return tuple(sorted({str(value) for value in values}))

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [Name().schema(), ListOf(Name()).schema()]}


_WHOLE = Number(
    "a whole number", least=Fraction(-MAX_PARTITION), most=Fraction(MAX_PARTITION), whole=True
)
_RANGE = Record(
    "a range",
    {"from": Field(_WHOLE, required=True), "to": Field(_WHOLE, required=True)},
    lambda v, _: (v["from"], v["to"]),
)


@dataclass(frozen=True, slots=True)
class _Selected:
    """What is selected of a partition: a value, values, or a range."""

    title: str = "a value, a list of values, or a range"

    def read(self, node: Node, report: Report) -> Any:
        match node:
            case Map():
                return _RANGE.read(node, report)
            case List():
                values = ListOf(Name(), least=1).read(node, report)
                some = values is not INVALID and values  # none is left if each was wrong
                return tuple(sorted(set(map(str, values)))) if some else INVALID
            case _:
                value = Name().read(node, report)
                return value if value is INVALID else (str(value),)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [Name().schema(), ListOf(Name()).schema(), _RANGE.schema()]}


@dataclass(frozen=True, slots=True)
class _Where:
    """One box, or a list of boxes whose union is meant."""

    title: str = "a map of partitions, or a list of such maps"

    def read(self, node: Node, report: Report) -> Any:
        box = MapOf(_Selected(), self.title)
        if isinstance(node, List):
            return ListOf(box, least=1).read(node, report)
        read = box.read(node, report)
        return read if read is INVALID else (read,)

    def schema(self) -> dict[str, Any]:
        box = MapOf(_Selected()).schema()
        return {"anyOf": [box, {"type": "array", "items": box}]}


@dataclass(frozen=True, slots=True)
class Day:
    """A date such as 2026-10-28, in a release or elsewhere."""

    title: str = "a date such as 2026-10-28"

    def read(self, node: Node, report: Report) -> Any:
        if not isinstance(node, Scalar) or not _DAY.fullmatch(node.text):
            return wrong_type(node, self.title, report)
        try:
            return date.fromisoformat(node.text)
        except ValueError:
            report("P009", f"there is no day `{node.text}`", node.span, None)
            return INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "format": "date"}


_TIME = Record(
    "`time`",
    {"from": Field(Day(), "the first day"), "to": Field(Day(), "the last day")},
    lambda v, _: {key: day.isoformat() for key, day in v.items() if day is not None},
)

MECHANISM: Shape = Record(
    "a mechanism of a release",
    {
        "name": Field(Name(), "for reports"),
        "mechanism": Field(_Plain("a mechanism such as {kind: gaussian}"), required=True),
        "unit": Field(Name(), "what the sensitivity or loss is stated for"),
        "relation": Field(Choice(tuple(Relation), "a neighbouring relation")),
        "additive": Field(Flag(), "theory 5.3", default=False),
        "also": Field(MapOf(_Plain("parameters for another unit")), default={}),
        "attributes": Field(ListOf(Name()), "all that influence the output", default=()),
        "labels": Field(MapOf(_LabelValue()), default={}),
        "where": Field(_Where(), "left out: everybody", default=()),
        "time": Field(_TIME, "left out: static data"),
    },
    lambda values, span: {**values, "span": span},
)

RELEASE: Shape = Record(
    "a release",
    {
        "release": Field(Name("an id"), "chosen by the client", required=True),
        "by": Field(Name(), "who asks", default=""),
        "utility": Field(
            Number("a utility from 0 to 10¹²", least=Fraction(0), most=Fraction(10**12))
        ),
        "mechanisms": Field(ListOf(MECHANISM, "a list of mechanisms", least=1), required=True),
    },
    lambda values, _: values,
)


def load_release(file: Path) -> Release:
    """The release of a file. Raises `PolicyRejected` with every mistake in it."""
    found = Findings()
    release = read_release(read_source(file), found)
    if release is None or found.errors:
        raise PolicyRejected(found.all)
    return release


def read_release(source: Source, found: Findings) -> Release | None:
    """The release that a text asks for; mistakes go to `found`."""
    node = read_nodes(source, found)
    return None if node is None else release_from(node, found)


def release_from(node: Node, found: Report) -> Release | None:
    """The release that a node describes; mistakes go to `found`."""
    values: Any = RELEASE.read(node, found)
    if values is INVALID:
        return None
    bodies = [_body(said) for said in values["mechanisms"]]
    requests, wrong = [], False
    for position, said in enumerate(values["mechanisms"], 1):
        request, problems = mechanism_of(bodies[position - 1], position)
        requests += [request] if request else []
        for problem in problems:
            wrong = True
            _report(problem, said["mechanism"][1], found)
    if wrong or len(requests) < _count(node):
        return None
    name, by, utility = str(values["release"]), str(values["by"]), values["utility"]
    said_by = {"by": by} if by else {}
    said_utility = {} if utility is None else {"utility": utility}
    body = {"release": name, **said_by, **said_utility, "mechanisms": bodies}
    return Release(name, by, utility, tuple(requests), body)


def _body(said: dict[str, Any]) -> dict[str, Any]:
    """A mechanism as plain values, without what was left out."""
    plain_parts = {
        "name": said["name"] and str(said["name"]),
        "mechanism": said["mechanism"][0],
        "unit": said["unit"] and str(said["unit"]),
        "relation": said["relation"] and str(said["relation"]),
        "additive": said["additive"] or None,
        "also": {str(unit): changes for unit, (changes, _) in said["also"].items()},
        "attributes": sorted({str(name) for name in said["attributes"]}),
        "labels": {str(k): _label(v) for k, v in said["labels"].items()},
        "where": [{str(k): _selected(v) for k, v in box.items()} for box in said["where"]],
        "time": said["time"],
    }
    return {key: value for key, value in plain_parts.items() if value or key == "mechanism"}


def _label(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value)


def _selected(value: Any) -> Any:
    """A range keeps its ends; anything else is a list of values."""
    if isinstance(value[0], int):
        return {"from": Fraction(value[0]), "to": Fraction(value[1])}
    return list(value)


def _count(node: Node) -> int:
    """How many mechanisms a text lists; those that are wrong were left out while reading."""
    listed = node.get("mechanisms") if isinstance(node, Map) else None
    return len(listed.items) if isinstance(listed, List) else 0


def _report(problem: InvalidValue, span: Span, found: Report) -> None:
    message, _, help_ = problem.message.partition("; help: ")
    found(problem.code, message, span, help_ or None)
