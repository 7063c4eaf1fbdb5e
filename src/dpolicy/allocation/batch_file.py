"""Batch files: competing releases, each with the round in which it arrives.

A file holds one release or a list of releases; a directory holds such files. The key `round` of a
release is used by simulations only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from dpolicy.errors import OperationRejected, PolicyRejected
from dpolicy.releases.release import Release
from dpolicy.releases.release_parser import release_from_node
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import INVALID, NumberShape
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import ListNode, MapNode, Source, TextNode, read_nodes

_ROUND = NumberShape("the number of a round", least=Fraction(0), whole=True)


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """Release of a batch; `round` is None if the file does not state it."""

    release: Release
    round: int | None


def load_batch(path: Path) -> list[BatchEntry]:
    """Read all releases of a file or a directory, in the order of the file names.

    Raise `PolicyRejected` with all diagnostics, and `OperationRejected` if an id occurs twice.
    """
    files = sorted([*path.glob("*.yaml"), *path.glob("*.yml")]) if path.is_dir() else [path]
    diagnostics = DiagnosticCollector()
    entries = [entry for file in files for entry in parse_batch(read_source(file), diagnostics)]
    if diagnostics.errors:
        raise PolicyRejected(diagnostics.sorted_diagnostics)
    check_unique_ids([entry.release for entry in entries])
    return entries


def check_unique_ids(releases: Sequence[Release]) -> None:
    """Raise `OperationRejected` if an id occurs twice."""
    repeated = [name for name, count in Counter(r.id for r in releases).items() if count > 1]
    if repeated:
        raise OperationRejected(f"release `{repeated[0]}` occurs twice")


def parse_batch(source: Source, diagnostics: DiagnosticCollector) -> Iterator[BatchEntry]:
    """Yield the releases of a text; errors go to `diagnostics`."""
    node = read_nodes(source, diagnostics.report)
    for item in node.items if isinstance(node, ListNode) else (node,):
        entry = None if item is None else _parse_entry(item, diagnostics)
        if entry is not None:
            yield entry


def _parse_entry(node: TextNode, diagnostics: DiagnosticCollector) -> BatchEntry | None:
    number = None
    if isinstance(node, MapNode) and (round_node := node.get("round")) is not None:
        number = _ROUND.read(round_node, diagnostics.report)
        release_entries = tuple((key, value) for key, value in node.entries if key.text != "round")
        node = MapNode(node.span, release_entries)
    release = release_from_node(node, diagnostics.report)
    if release is None or number is INVALID:
        return None
    return BatchEntry(release, None if number is None else int(number))
