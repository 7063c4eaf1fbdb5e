"""Parser of releases: files, mappings and nodes → `Release`, with all errors reported.

`release_format` describes the format. Every mechanism is parsed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpolicy.errors import InvalidValue, MalformedRelease, PolicyRejected
from dpolicy.releases.body import copy_body, mechanism_from_body
from dpolicy.releases.python.python_values import to_plain_body
from dpolicy.releases.python.quick_reader import read_plain
from dpolicy.releases.release import Release, mark_parsed
from dpolicy.releases.release_format import RELEASE
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.plain_nodes import node_from_plain
from dpolicy.text.shapes import INVALID, IdentityShape
from dpolicy.text.source_files import read_source, to_path
from dpolicy.text.yaml_reader import (
    ListNode,
    MapNode,
    Report,
    Source,
    Span,
    TextNode,
    read_nodes,
)


def load_release(file: str | Path) -> Release:
    """Return the release of a file. Raise `MalformedRelease` with all its errors."""
    source = read_source(to_path(file))
    return _collect_errors(lambda diagnostics: parse_release(source, diagnostics))


def release_from_plain(body: Mapping[str, Any]) -> Release:
    """Return the release of a mapping of Python values, checked as strictly as a file.

    Raise `MalformedRelease` with all its errors; each names the path of its value. A value that no
    body can hold, such as NaN, is reported alone. The quick reader reads a well-formed mapping.
    """
    return read_plain(body) or parse_plain_strictly(body)


def parse_plain_strictly(body: Mapping[str, Any]) -> Release:
    """Return the release of a mapping by nodes and shapes: the reference for the quick reader.

    Raise `MalformedRelease` with all its errors.
    """
    return _collect_errors(lambda diagnostics: _parse_plain(body, diagnostics))


def _parse_plain(body: Mapping[str, Any], diagnostics: DiagnosticCollector) -> Release | None:
    try:
        plain = to_plain_body(body)
    except InvalidValue as problem:
        _report_problem(problem, Span(Source("release", ""), 1, 1, 1, 1), diagnostics.report)
        return None
    node = node_from_plain(plain, "release", diagnostics.report)
    return release_from_node(node, diagnostics.report)


def snapshot_release(release: Release) -> Release:
    """Return a copy that shares no mutable value with the caller.

    The mechanisms of a parsed release are taken as they are. A release that was built by hand, or
    whose body was changed, is parsed from its body. Raise `MalformedRelease` with all its errors.
    """
    body = copy_body(release.body)
    if release.was_parsed_from(body):
        return mark_parsed(replace(release, body=body))
    return release_from_plain(body)


def release_with_author(release: Release, by: str) -> Release:
    """Return the release with `by` as its author; its mechanisms are not parsed again.

    Raise `MalformedRelease` if `by` is not a valid identity.
    """
    if release.by == by:
        return release
    changed = replace(release, by=by, body={**release.body, "by": by})
    _collect_errors(lambda diagnostics: _check_author(changed, diagnostics))
    return mark_parsed(changed) if release.is_parsed else changed


def release_with_id(release: Release, release_id: str) -> Release:
    """Return a parsed release under another valid id; its mechanisms are not parsed again."""
    changed = replace(release, id=release_id, body={**release.body, "release": release_id})
    return mark_parsed(changed) if release.is_parsed else changed


def _check_author(release: Release, diagnostics: DiagnosticCollector) -> Release:
    node = node_from_plain(release.by, "release.by", diagnostics.report)
    IdentityShape().read(node, diagnostics.report)
    return release


def _collect_errors(parse: Callable[[DiagnosticCollector], Release | None]) -> Release:
    """Return the release that `parse` returns. Raise `MalformedRelease` with all its errors."""
    diagnostics = DiagnosticCollector()
    try:
        release = parse(diagnostics)
    except PolicyRejected as error:  # there are too many errors
        raise MalformedRelease(error.diagnostics) from None
    if release is None or diagnostics.errors:
        raise MalformedRelease(diagnostics.sorted_diagnostics)
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
