"""`dpolicy import`: charges releases that have already happened."""

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
from dpolicy.releases.release_format import load_release, node_to_plain
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import MAX_BYTES, Source, read_nodes

#: What stands between two documents of one file.
_NEXT_DOCUMENT = re.compile(r"^---(?=\s|$)", re.MULTILINE)

#: A line that is neither empty nor a comment.
_SAYS_SOMETHING = re.compile(r"^[ \t]*[^\s#]", re.MULTILINE)

#: An entry of the registry: where it stands, and its values.
_Entry = tuple[str, Any]


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@ledger_option
@author_option
@click.option("--because", default="", help="Why, for the record.")
@click.option("--unit", help="Registry: the policy's unit that an entry's privacy unit is.")
@click.option(
    "--relation",
    type=click.Choice([str(relation) for relation in NeighbouringRelation]),
    help="Registry: what an entry's neighbours are; add-remove if left out.",
)
@click.option(
    "--times",
    type=click.IntRange(min=1),
    help="Registry: how often an entry of many releases was published for one unit.",
)
@click.option("--label", "labels", multiple=True, help="Registry: a label, as name=value.")
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
    """Charge the past releases FILES. They are never refused, also above a budget.

    A file is a release, or entries of the OpenDP deployments registry, which are read under the
    policy in force.
    """
    read = [_read(file) for file in files]
    told = RegistryImportOptions(
        unit,
        NeighbouringRelation(relation or NeighbouringRelation.ADD_REMOVE),
        times,
        _labels(labels),
    )
    if told != RegistryImportOptions() and not any(isinstance(found, list) for found in read):
        raise click.UsageError("what is told of registry entries is told of none: see --help")
    with open_decision_point(ledger, new=True) as point:
        releases = _releases(read, point.policy, told)
        numbers = {r.id: point.import_past(r, because, by) for r in releases}
        broken = [balance for balance in point.budgets() if not balance.holds]
    if format_ == "json":
        exceeded = [balance.as_json() for balance in broken]
        print_json({"imported": numbers, "exceeded": exceeded})
    else:
        print_note(f"imported {', '.join(numbers)}")
        for balance in broken:
            print_note(f"now exceeded: {balance.rule.name}  unit {balance.rule.unit}")
    return 0


def _labels(label_arguments: tuple[str, ...]) -> dict[str, str]:
    pairs = [label.partition("=") for label in label_arguments]
    if not all(name and value for name, _, value in pairs):
        raise click.UsageError("a label is told as name=value")
    return {name: value for name, _, value in pairs}


def _read(file: Path) -> Release | list[_Entry]:
    """A release, or the entries of a file whose first document is one, by its keys."""
    source = read_source(file)
    if len(source.text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return load_release(file)  # which says so
    documents = list(_documents(source))
    first = read_nodes(documents[0], DiagnosticCollector()) if documents else None
    if first is None or not is_registry_entry(node_to_plain(first)):
        return load_release(file)
    found = DiagnosticCollector()
    nodes = [(document.name, read_nodes(document, found)) for document in documents]
    if found.errors:
        raise PolicyRejected(found.sorted_diagnostics)
    return [(name, node_to_plain(node)) for name, node in nodes if node is not None]


def _documents(source: Source) -> Iterator[Source]:
    """The documents of a text, each with its number."""
    parts = [part for part in _NEXT_DOCUMENT.split(source.text) if _SAYS_SOMETHING.search(part)]
    for number, part in enumerate(parts, 1):
        yield Source(f"{source.name}#{number}", part)


def _releases(
    read: list[Release | list[_Entry]],
    policy: CompiledPolicy | None,
    options: RegistryImportOptions,
) -> list[Release]:
    """All that the files hold as releases, or every problem of every entry."""
    releases: list[Release] = []
    problems: list[InvalidValue] = []
    for found in read:
        if isinstance(found, Release):
            releases.append(found)
            continue
        if policy is None:
            raise OperationRejected(
                "a registry entry is read under a policy: `dpolicy apply` puts one in"
            )
        for place, entry in found:
            body, wrong = release_body_from_entry(entry, policy, options)
            releases += [] if body is None else [parse_request(body)]
            problems += [InvalidValue(p.code, f"{place}: {p.message}") for p in wrong]
    if problems:
        raise ReleaseRejected(problems)
    return releases
