"""`dpolicy fmt`: rewrite policy files in canonical layout."""

from __future__ import annotations

from pathlib import Path

import click

from dpolicy.cli.exit_codes import REJECTED
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.errors import PolicyRejected
from dpolicy.policy.formatter import format_text
from dpolicy.policy.parser import policy_files
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import read_nodes


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Change nothing; exit with 3 if a file would change.")
@format_option
def command(path: Path, check: bool, format_: str) -> int:
    """Rewrite the files of the policy set PATH in canonical layout. Comments stay."""
    files = [file for file in policy_files(path) if file == path or not _is_skipped(file)]
    texts = {file: _format_file(file) for file in files}
    changed = [file for file, text in texts.items() if file.read_bytes() != text.encode()]
    if not check:
        for file in changed:
            file.write_bytes(texts[file].encode())
    if format_ == "json":
        print_json({"changed": [str(file) for file in changed]})
    else:
        for file in changed:
            print_note(f"{'would change' if check else 'changed'} {file}")
    return REJECTED if check and changed else 0


def _is_skipped(file: Path) -> bool:
    """Return whether a file in a directory keeps its layout: JSON and cases."""
    return file.suffix.lower() == ".json" or file.stem.endswith("_test")


def _format_file(file: Path) -> str:
    diagnostics = DiagnosticCollector()
    source = read_source(file)
    root = read_nodes(source, diagnostics.report)
    if root is None or diagnostics.errors:
        raise PolicyRejected(diagnostics.sorted_diagnostics)
    return format_text(source, root)
