"""Files of releases that compete → the releases, each with the round in which it arrives.

A file holds a list of releases, or one; a directory holds such files. `round` beside `release` says
when it arrives, for simulations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from dpolicy.errors import OperationRejected, PolicyRejected
from dpolicy.releases.release import Release
from dpolicy.releases.release_format import release_from_node
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import INVALID, NumberShape
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import ListNode, MapNode, Source, TextNode, read_nodes

_ROUND = NumberShape("the number of a round", least=Fraction(0), whole=True)


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """A release of a batch; `round` is None if nothing is said of it."""

    release: Release
    round: int | None


def load_batch(path: Path) -> list[BatchEntry]:
    """All releases of a file or a directory, in order.

    Raises `PolicyRejected` with every mistake in them, and `Misused` if an id occurs twice.
    """
    files = sorted([*path.glob("*.yaml"), *path.glob("*.yml")]) if path.is_dir() else [path]
    found = DiagnosticCollector()
    entries = [entry for file in files for entry in parse_batch(read_source(file), found)]
    if found.errors:
        raise PolicyRejected(found.sorted_diagnostics)
    check_unique_ids([entry.release for entry in entries])
    return entries


def check_unique_ids(releases: Sequence[Release]) -> None:
    """Raise `Misused` if an id occurs twice."""
    twice = [name for name, count in Counter(r.id for r in releases).items() if count > 1]
    if twice:
        raise OperationRejected(f"the release `{twice[0]}` is there twice")


def parse_batch(source: Source, diagnostics: DiagnosticCollector) -> Iterator[BatchEntry]:
    """The releases of a text; mistakes go to `found`."""
    node = read_nodes(source, diagnostics.report)
    for item in node.items if isinstance(node, ListNode) else (node,):
        entry = None if item is None else _entry(item, diagnostics)
        if entry is not None:
            yield entry


def _entry(node: TextNode, diagnostics: DiagnosticCollector) -> BatchEntry | None:
    number = None
    if isinstance(node, MapNode) and (said := node.get("round")) is not None:
        number = _ROUND.read(said, diagnostics.report)
        others = tuple((key, value) for key, value in node.entries if key.text != "round")
        node = MapNode(node.span, others)
    release = release_from_node(node, diagnostics.report)
    if release is None or number is INVALID:
        return None
    return BatchEntry(release, None if number is None else int(number))
