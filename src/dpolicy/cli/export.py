"""`dpolicy export`: the history of a ledger for other programs."""

from __future__ import annotations

import csv
import sys

import click

from dpolicy.cli.ledger_option import ledger_option, opened
from dpolicy.cli.output import format_option
from dpolicy.enforcement.audit import records
from dpolicy.enforcement.state import Entry
from dpolicy.ledger.events import Event, body_of
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
            entries = {entry.charged: entry for entry in point.entries.values()}
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(_COLUMNS)
    store = open_existing(ledger)
    try:
        for record, event in records(store):
            if to == "json":
                click.echo(record.payload.decode("utf-8"))
            elif record.sequence in entries:
                csv.writer(sys.stdout, lineterminator="\n").writerows(
                    _rows(event, entries[record.sequence])
                )
    finally:
        store.close()
    return 0


def _rows(event: Event, entry: Entry) -> list[list[object]]:
    body = body_of(event)
    return [
        [
            body["release"],
            entry.asked,
            event.at,
            getattr(event, "by", ""),
            entry.status,
            said.get("name", f"mechanism {position}"),
            said["mechanism"]["kind"],
            said.get("unit", ""),
            " ".join(said.get("attributes", ())),
        ]
        for position, said in enumerate(body["mechanisms"], 1)
    ]
