"""`dpolicy import`: record and charge past releases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from dpolicy.cli.ledger_option import author_option, ledger_option, open_decision_point
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.errors import InvalidValue, OperationRejected, PolicyRejected, ReleaseRejected
from dpolicy.integrations.registry.registry_import import (
    RegistryImportOptions,
    is_registry_entry,
    release_body_from_entry,
)
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.releases.release import Release
from dpolicy.releases.release_format import node_to_plain
from dpolicy.releases.release_parser import load_release
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import MAX_BYTES, Source, read_nodes

#: Separator of two documents of one file.
_NEXT_DOCUMENT = re.compile(r"^---(?=\s|$)", re.MULTILINE)

#: A line that is neither empty nor a comment.
_CONTENT_LINE = re.compile(r"^[ \t]*[^\s#]", re.MULTILINE)

#: An entry of the registry: its position in the file, and its values.
_Entry = tuple[str, Any]


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@ledger_option
@author_option
@click.option("--because", default="", help="Reason, stored in the ledger.")
@click.option("--unit", help="Registry: policy unit that corresponds to the entry's privacy unit.")
@click.option(
    "--relation",
    type=click.Choice([str(relation) for relation in NeighbouringRelation]),
    help="Registry: neighbouring relation of the entry; default add-remove.",
)
@click.option(
    "--times",
    type=click.IntRange(min=1),
    help="Registry: number of publications per unit for an entry of several releases.",
)
@click.option("--label", "labels", multiple=True, help="Registry: label as name=value; repeatable.")
@format_option
def command(
    files: tuple[Path, ...],
    ledger: str,
    by: str,
    because: str,
    unit: str | None,
    relation: str | None,
    times: int | None,
    labels: tuple[str, ...],
    format_: str,
) -> int:
    """Record the past releases FILES and charge them, even if a budget is exceeded.

    A file is a release, or entries of the OpenDP deployments registry. The active policy resolves
    the entries.
    """
    contents = [_read_file(file) for file in files]
    options = RegistryImportOptions(
        unit,
        NeighbouringRelation(relation or NeighbouringRelation.ADD_REMOVE),
        times,
        _labels(labels),
    )
    has_entries = any(isinstance(content, list) for content in contents)
    if options != RegistryImportOptions() and not has_entries:
        names = "--unit, --relation, --times and --label"
        raise click.UsageError(f"{names} apply only to registry entries, and FILES has none")
    with open_decision_point(ledger, new=True) as point:
        releases = _releases(contents, point.policy, options)
        numbers = {r.id: point.import_past(r, because, by) for r in releases}
        exceeded = [status for status in point.budgets() if not status.holds]
    if format_ == "json":
        print_json({"imported": numbers, "exceeded": [status.as_json() for status in exceeded]})
    else:
        print_note(f"imported {', '.join(numbers)}")
        for status in exceeded:
            print_note(f"now exceeded: {status.rule.name}  unit {status.rule.unit}")
    return 0


def _labels(label_arguments: tuple[str, ...]) -> dict[str, str]:
    pairs = [label.partition("=") for label in label_arguments]
    if not all(name and value for name, _, value in pairs):
        raise click.UsageError("--label must have the form name=value")
    return {name: value for name, _, value in pairs}


def _read_file(file: Path) -> Release | list[_Entry]:
    """Read a release, or registry entries if the first document has the keys of an entry."""
    source = read_source(file)
    if len(source.text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return load_release(file)  # which reports the size
    documents = list(_documents(source))
    first = read_nodes(documents[0], DiagnosticCollector().report) if documents else None
    if first is None or not is_registry_entry(node_to_plain(first)):
        return load_release(file)
    diagnostics = DiagnosticCollector()
    nodes = [(document.name, read_nodes(document, diagnostics.report)) for document in documents]
    if diagnostics.errors:
        raise PolicyRejected(diagnostics.sorted_diagnostics)
    return [(name, node_to_plain(node)) for name, node in nodes if node is not None]


def _documents(source: Source) -> Iterator[Source]:
    """Split a text into its documents; the name of each has its number."""
    parts = [part for part in _NEXT_DOCUMENT.split(source.text) if _CONTENT_LINE.search(part)]
    for number, part in enumerate(parts, 1):
        yield Source(f"{source.name}#{number}", part)


def _releases(
    contents: list[Release | list[_Entry]],
    policy: CompiledPolicy | None,
    options: RegistryImportOptions,
) -> list[Release]:
    """Return all releases of the files. Raise `ReleaseRejected` with all problems of entries."""
    releases: list[Release] = []
    problems: list[InvalidValue] = []
    for content in contents:
        if isinstance(content, Release):
            releases.append(content)
            continue
        if policy is None:
            raise OperationRejected(
                "a registry entry needs an active policy; run `dpolicy apply` first"
            )
        for position, entry in content:
            body, entry_problems = release_body_from_entry(entry, policy, options)
            releases += [] if body is None else [parse_request(body)]
            problems += [InvalidValue(p.code, f"{position}: {p.message}") for p in entry_problems]
    if problems:
        raise ReleaseRejected(problems)
    return releases
