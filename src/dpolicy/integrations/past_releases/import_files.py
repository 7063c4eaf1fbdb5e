"""Import files → past releases with their dates. All errors of all files are reported at once.

A file is a release, a list of releases, a table with a mapping (CSV, Parquet, lists of maps), or
entries of the deployments registry. A folder has such files. A release in a file may state the day
on which it happened with the key `released`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from dpolicy.decisions.completion import Reading
from dpolicy.decisions.resolution import find_problems
from dpolicy.errors import InvalidValue, MalformedRelease, OperationRejected, ReleaseRejected
from dpolicy.integrations.past_releases.mapped_rows import release_nodes
from dpolicy.integrations.past_releases.mapping_file import TableMapping
from dpolicy.integrations.past_releases.tables import read_table
from dpolicy.integrations.registry.entry_files import split_documents
from dpolicy.integrations.registry.registry_import import (
    RegistryImportOptions,
    is_registry_entry,
    release_body_from_entry,
)
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.releases.release import Release
from dpolicy.releases.release_format import DateShape, node_to_plain
from dpolicy.releases.release_parser import release_from_node
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.source_files import read_source
from dpolicy.text.spans import Report
from dpolicy.text.yaml_reader import MAX_BYTES, ListNode, MapNode, TextNode, read_nodes

#: Ends of the names of the files that are read from a folder.
SUFFIXES = (".csv", ".json", ".parquet", ".tsv", ".yaml", ".yml")
_TABLE_SUFFIXES = (".csv", ".parquet", ".tsv")

#: The field of a mechanism in which a problem of a code is.
_FIELDS_BY_CODE = {
    "R001": "unit",
    "R002": "attributes",
    **dict.fromkeys(("R003", "R004", "R005"), "labels"),
    "R006": "where",
    "R007": "additive",
    **dict.fromkeys(("R010", "R011"), "relation"),
}


class PastRelease(NamedTuple):
    """Release with the day on which it happened, None if the file does not state it."""

    release: Release
    released: str | None


@dataclass(frozen=True, slots=True)
class ImportContext:
    """What import files are read with: the active policy, the current day, and options."""

    policy: CompiledPolicy | None
    today: date
    mapping: TableMapping | None = None
    registry: RegistryImportOptions = field(default_factory=RegistryImportOptions)


@dataclass(frozen=True, slots=True)
class ImportContent:
    """Releases of the files, and whether a file has entries of the registry."""

    releases: tuple[PastRelease, ...]
    has_registry_entries: bool


def load_import_files(paths: Sequence[Path], context: ImportContext) -> ImportContent:
    """Read all past releases of files and folders, in the order of their names.

    Raise `MalformedRelease` with all errors of all files, or `ReleaseRejected` with those of
    registry entries.
    """
    diagnostics = DiagnosticCollector()
    problems: list[InvalidValue] = []
    releases: list[PastRelease] = []
    has_entries = False
    for file in [file for path in paths for file in _files(path)]:
        entries = _read_registry_entries(file, context, diagnostics)
        if entries is None:
            releases += _read_releases(file, context, diagnostics.report)
            continue
        has_entries = True
        for position, entry in entries:
            past, own = _release_from_entry(entry, context)
            releases += [] if past is None else [past]
            problems += [InvalidValue(p.code, f"{position}: {p.message}") for p in own]
    if diagnostics.errors:
        raise MalformedRelease(diagnostics.sorted_diagnostics)
    if problems:
        raise ReleaseRejected(problems)
    return ImportContent(tuple(releases), has_entries)


def _files(path: Path) -> list[Path]:
    """Return a file, or the import files of a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
    if not files:
        listed = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        raise OperationRejected(f"the folder `{path}` has no file {listed}")
    return files


def _read_releases(file: Path, context: ImportContext, report: Report) -> Iterator[PastRelease]:
    """Yield the releases of a file that is no registry entry."""
    for node in _release_nodes(file, context.mapping, report):
        past = _parse_release(node, context.today, report)
        if past is not None:
            yield past
            if context.policy is not None:
                _report_problems(past.release, node, context.policy, report)


def _release_nodes(file: Path, mapping: TableMapping | None, report: Report) -> Sequence[TextNode]:
    if mapping is not None:
        table = read_table(file, mapping.delimiter, report)
        return [] if table is None else release_nodes(table, mapping, report)
    if file.suffix.lower() in _TABLE_SUFFIXES:
        raise OperationRejected(
            f"`{file}` is a table: state with --mapping what its columns are (docs/import.md)"
        )
    node = read_nodes(read_source(file), report)
    if isinstance(node, ListNode):
        return node.items
    return [] if node is None else [node]


def _parse_release(node: TextNode, today: date, report: Report) -> PastRelease | None:
    """Return the release of a node with its day; report its errors and a day in the future."""
    day: Any = None
    if isinstance(node, MapNode) and (stated := node.get("released")) is not None:
        day = DateShape().read(stated, report)
        if isinstance(day, date) and day > today + timedelta(days=1):
            report("P009", f"the date {day} of a past release is in the future", stated.span, None)
        entries = tuple(entry for entry in node.entries if entry[0].text != "released")
        node = MapNode(node.span, entries)
    release = release_from_node(node, report)
    if release is None:
        return None
    return PastRelease(release, day.isoformat() if isinstance(day, date) else None)


def _report_problems(
    release: Release, node: TextNode, policy: CompiledPolicy, report: Report
) -> None:
    """Report what the policy does not define, at the cell or key that states it."""
    listed = node.get("mechanisms") if isinstance(node, MapNode) else None
    nodes = listed.items if isinstance(listed, ListNode) else ()
    for request, mechanism in zip(release.mechanisms, nodes, strict=True):
        for problem in find_problems(request, policy, Reading.STRICT):
            name = _FIELDS_BY_CODE.get(problem.code, "mechanism")
            stated = mechanism.get(name) if isinstance(mechanism, MapNode) else None
            message, _, help_ = problem.message.partition("; help: ")
            span = mechanism.span if stated is None else stated.span
            report(problem.code, message, span, help_ or None)


def _read_registry_entries(
    file: Path, context: ImportContext, diagnostics: DiagnosticCollector
) -> list[tuple[str, Any]] | None:
    """Return the registry entries of a file with their positions; None if it has none."""
    if context.mapping is not None or file.suffix.lower() in _TABLE_SUFFIXES:
        return None
    source = read_source(file)
    if len(source.text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return None  # the reader of releases reports the size
    documents = list(split_documents(source))
    first = read_nodes(documents[0], DiagnosticCollector().report) if documents else None
    if first is None or not is_registry_entry(node_to_plain(first)):
        return None
    nodes = [(document.name, read_nodes(document, diagnostics.report)) for document in documents]
    return [(name, node_to_plain(node)) for name, node in nodes if node is not None]


def _release_from_entry(
    entry: Any, context: ImportContext
) -> tuple[PastRelease | None, tuple[InvalidValue, ...]]:
    """Return the release of a registry entry with its day of publication, or all problems."""
    if context.policy is None:
        raise OperationRejected(
            "a registry entry needs an active policy; run `dpolicy apply` first"
        )
    body, problems = release_body_from_entry(entry, context.policy, context.registry)
    if body is None:
        return None, problems
    return PastRelease(parse_request(body), _publication_day(entry, context.today)), problems


def _publication_day(entry: Any, today: date) -> str | None:
    """Return the publication date of an entry if it is a past day; registries also state years."""
    try:
        stated = str(entry["deployment"]["basic"]["publication_date"])
        day = date.fromisoformat(stated)
    except (KeyError, TypeError, ValueError):
        return None
    return stated if day.isoformat() == stated and day <= today else None
