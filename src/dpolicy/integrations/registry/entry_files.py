"""Registry files: one entry per YAML document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpolicy.errors import InvalidValue, PolicyRejected, ReleaseRejected
from dpolicy.integrations.registry.registry_import import is_registry_entry
from dpolicy.releases.release_format import node_to_plain
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import Source, read_nodes

#: Separator of two documents of one file.
_NEXT_DOCUMENT = re.compile(r"^---(?=\s|$)", re.MULTILINE)

#: A line that is neither empty nor a comment.
_CONTENT_LINE = re.compile(r"^[ \t]*[^\s#]", re.MULTILINE)


def load_entries(file: Path) -> list[Mapping[str, Any]]:
    """Return the entries of a file.

    Raise `PolicyRejected` for a text that is no YAML, `ReleaseRejected` for other documents.
    """
    diagnostics = DiagnosticCollector()
    documents = list(split_documents(read_source(file)))
    nodes = [(document.name, read_nodes(document, diagnostics.report)) for document in documents]
    if diagnostics.errors:
        raise PolicyRejected(diagnostics.sorted_diagnostics)
    entries = [(name, node_to_plain(node)) for name, node in nodes if node is not None]
    problems = [
        InvalidValue("G001", f"{name}: not a registry entry: `deployment` is missing")
        for name, entry in entries
        if not is_registry_entry(entry)
    ]
    if not entries:
        problems = [InvalidValue("G001", f"{file}: the file has no registry entry")]
    if problems:
        raise ReleaseRejected(problems)
    return [entry for _, entry in entries]


def split_documents(source: Source) -> Iterator[Source]:
    """Split a text into its documents; the name of each has its number."""
    parts = [part for part in _NEXT_DOCUMENT.split(source.text) if _CONTENT_LINE.search(part)]
    for number, part in enumerate(parts, 1):
        yield Source(f"{source.name}#{number}", part)
