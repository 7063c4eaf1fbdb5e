"""`dpolicy export`: the history of a ledger for other programs."""

from __future__ import annotations

import csv
import sys
from itertools import chain

import click

from dpolicy.cli.ledger_option import ledger_option, opened
from dpolicy.cli.output import format_option
from dpolicy.enforcement.audit import records
from dpolicy.enforcement.state import Entry
from dpolicy.ledger.opening import open_existing

_COLUMNS = ("release", "sequence", "at", "by", "status", "mechanism", "kind", "unit", "attributes")


@click.command()
@ledger_option
@click.option("--to", type=click.Choice(["json", "csv"]), default="json", help="What to write.")
@format_option
def command(ledger: str, to: str, format_: str) -> int:
    """Write every event as JSON lines, or every mechanism of every release as CSV.

    What is written is for programs in either format.
    """
    if to == "csv":
        with opened(ledger) as point:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(_COLUMNS)
            rows = (_rows(release, entry) for release, entry in point.entries.items())
            writer.writerows(chain.from_iterable(rows))
        return 0
    store = open_existing(ledger)
    try:
        for record, _ in records(store):
            click.echo(record.payload.decode("utf-8"))
    finally:
        store.close()
    return 0


def _rows(release: str, entry: Entry) -> list[list[object]]:
    return [
        [
            release,
            entry.sequence,
            entry.at,
            entry.by,
            entry.status,
            said.get("name", f"mechanism {position}"),
            said["mechanism"]["kind"],
            said.get("unit", ""),
            " ".join(said.get("attributes", ())),
        ]
        for position, said in enumerate(entry.charged["mechanisms"], 1)
    ]
