"""`dpolicy commit`: end a reservation as used."""

from __future__ import annotations

from pathlib import Path

import click

from dpolicy.cli.ledger_option import author_option, ledger_option, open_decision_point
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.releases.release_parser import load_release


@click.command()
@click.argument("release")
@ledger_option
@author_option
@click.option(
    "--used",
    type=click.Path(path_type=Path),
    help="File with the mechanisms that were run, if fewer than reserved.",
)
@format_option
def command(release: str, ledger: str, by: str, used: Path | None, format_: str) -> int:
    """End the reservation RELEASE as used, completely or in part."""
    with open_decision_point(ledger) as point:
        sequence = point.commit(release, None if used is None else load_release(used), by)
    if format_ == "json":
        print_json({"release": release, "status": "committed", "sequence": sequence})
    else:
        print_note(f"{release} committed at record {sequence}")
    return 0
