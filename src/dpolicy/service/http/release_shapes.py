"""Shapes of releases in request bodies: one release, one with its mode, and one of many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpolicy.errors import MalformedRelease, PolicyRejected
from dpolicy.releases.python.quick_reader import read_decoded_body
from dpolicy.releases.release_format import RELEASE
from dpolicy.releases.release_parser import release_from_node
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import INVALID, ChoiceShape, ListShape, RecordField, RecordShape
from dpolicy.text.yaml_reader import MapNode, Report, TextNode

#: Values of `mode`: charge at once, or reserve until `commit` or `void`.
MODES = ("commit", "reserve")


@dataclass(frozen=True, slots=True)
class ReleaseShape:
    """Shape of a release, as in a release file."""

    title: str = "a release"

    def read(self, node: TextNode, report: Report) -> Any:
        """Return the release; report errors and return `INVALID` if it has any."""
        return release_from_node(node, report) or INVALID

    def read_quickly(self, fields: dict[str, Any]) -> Any:
        """Return the release of decoded JSON; None if the strict reader must read it."""
        return read_decoded_body(fields)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a release."""
        return RELEASE.schema()


@dataclass(frozen=True, slots=True)
class SubmissionShape:
    """Shape of a release with the additional key `mode`; its value is (release, mode)."""

    title: str = "a release with its `mode`"

    def read(self, node: TextNode, report: Report) -> Any:
        mode: Any = MODES[0]
        mode_node = node.get("mode") if isinstance(node, MapNode) else None
        if isinstance(node, MapNode) and mode_node is not None:
            mode = ChoiceShape(MODES, "a mode").read(mode_node, report)
            entries = tuple((key, value) for key, value in node.entries if key.text != "mode")
            node = MapNode(node.span, entries)
        release = release_from_node(node, report)
        return INVALID if release is None or mode is INVALID else (release, str(mode))

    def read_quickly(self, fields: dict[str, Any]) -> Any:
        """Return release and mode of decoded JSON; None if the strict reader must read them."""
        mode = fields.pop("mode", MODES[0])
        release = read_decoded_body(fields) if mode in MODES else None
        return None if release is None else (release, mode)

    def schema(self) -> dict[str, Any]:
        release = RELEASE.schema()
        mode = {"enum": list(MODES), "default": MODES[0]}
        return {**release, "properties": {**release["properties"], "mode": mode}}


@dataclass(frozen=True, slots=True)
class ReleaseOrErrorShape:
    """Shape of one of many releases; its value is the release, or the error with its diagnostics.

    The errors of one release do not affect the others.
    """

    title: str = "a release"

    def read(self, node: TextNode, report: Report) -> Any:
        diagnostics = DiagnosticCollector()
        try:
            release = release_from_node(node, diagnostics.report)
        except PolicyRejected as error:  # there are too many errors
            return MalformedRelease(error.diagnostics)
        if release is None or diagnostics.errors:
            return MalformedRelease(diagnostics.sorted_diagnostics)
        return release

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a release; any other value has a problem as its result."""
        return {"anyOf": [RELEASE.schema(), {"description": "the result is a problem"}]}


@dataclass(frozen=True, slots=True)
class ReleasesShape:
    """Shape of a map with the key `releases`; its value has a release or an error for each."""

    most: int
    title: str = "releases"

    def read(self, node: TextNode, report: Report) -> Any:
        return self._record().read(node, report)

    def read_quickly(self, fields: dict[str, Any]) -> Any:
        """Return the releases of decoded JSON; None if the strict reader must read them."""
        items = fields.get("releases")
        if len(fields) != 1 or not isinstance(items, list) or not 1 <= len(items) <= self.most:
            return None
        releases = tuple(read_decoded_body(item) if type(item) is dict else None for item in items)
        return None if None in releases else releases

    def schema(self) -> dict[str, Any]:
        return self._record().schema()

    def _record(self) -> RecordShape:
        items = ListShape(ReleaseOrErrorShape(), "a list of releases", least=1, most=self.most)
        fields = {"releases": RecordField(items, "", required=True)}
        return RecordShape(self.title, fields, lambda values, _: values["releases"])
