"""`dpolicy report`: write a report about a ledger for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import click

from dpolicy.cli.ledger_option import ledger_option
from dpolicy.cli.output.output_format import OutputFormat
from dpolicy.cli.output.printing import print_note
from dpolicy.ledger.store_address import open_existing
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.reports.board_report import build_board_report
from dpolicy.reports.csv_lines import render_csv
from dpolicy.reports.document import Document
from dpolicy.reports.dossier import build_dossier
from dpolicy.reports.html_page import render_html
from dpolicy.reports.ledger_facts import LedgerFacts, collect_facts
from dpolicy.reports.markdown_text import render_markdown
from dpolicy.reports.pdf_file import print_pdf
from dpolicy.reports.statement import build_statement

_KINDS: Mapping[str, Callable[[DecisionPoint, LedgerFacts], Document]] = {
    "board": build_board_report,
    "dossier": build_dossier,
    "statement": build_statement,
}
_TEXT_FORMATS: Mapping[str, Callable[[Document], str]] = {
    "html": render_html,
    "markdown": render_markdown,
    "csv": render_csv,
    "json": lambda document: json.dumps(document.as_json(), ensure_ascii=False, indent=2) + "\n",
}
#: The format of a file by the end of its name.
_SUFFIXES = {
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".txt": "markdown",
    ".csv": "csv",
    ".json": "json",
    ".pdf": "pdf",
}


def _remember_format(context: click.Context, _: click.Parameter, value: str | None) -> str | None:
    if isinstance(context.obj, OutputFormat) and value == "json":
        context.obj.name = value
    return value


@click.command()
@ledger_option
@click.option("--kind", type=click.Choice(list(_KINDS)), default="board", help="Kind of report.")
@click.option("--out", type=click.Path(path_type=Path), help="File to write; default: print.")
@click.option(
    "--format",
    "format_",
    type=click.Choice([*_TEXT_FORMATS, "pdf"]),
    callback=_remember_format,
    is_eager=True,
    help="Format; default: by the end of the name of --out, else markdown.",
)
def command(ledger: str, kind: str, out: Path | None, format_: str | None) -> int:
    """Write a report about a ledger: for a board, as a dossier, or as a public statement.

    The board report has promises, use by category and unit, trend, spenders, denials, policy
    changes and open conflicts. The dossier follows NIST SP 800-226 and the order of a data
    protection impact assessment. The statement has no author and no id. The command verifies the
    ledger first, and each report states the result. A PDF needs Chromium or Chrome.
    """
    chosen = format_ or _choose_format(out)
    if chosen == "pdf" and out is None:
        raise click.UsageError("a PDF needs --out FILE")
    document = _build(ledger, kind)
    if chosen == "pdf":
        content = print_pdf(render_html(document))
    else:
        content = _TEXT_FORMATS[chosen](document).encode("utf-8")
    if out is None:
        click.echo(content.decode("utf-8"), nl=False)
    else:
        out.write_bytes(content)
        print_note(f"wrote {out}")
    return 0


def _choose_format(out: Path | None) -> str:
    """Return the format that the name of a file states; Markdown for a name without an end."""
    suffix = "" if out is None else out.suffix.lower()
    if suffix and suffix not in _SUFFIXES:
        formats = ", ".join(_SUFFIXES)
        raise click.UsageError(f"`{suffix}` is no known format: use {formats}, or give --format")
    return _SUFFIXES.get(suffix, "markdown")


def _build(ledger: str, kind: str) -> Document:
    store = open_existing(ledger)
    point = DecisionPoint(store)
    try:
        return _KINDS[kind](point, collect_facts(store, point, datetime.now(UTC)))
    finally:
        point.close()
