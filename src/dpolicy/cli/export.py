"""`dpolicy export`: the history of a ledger for other programs."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator

import click

from dpolicy.cli.ledger_option import ledger_option, opened
from dpolicy.cli.output import format_option, note
from dpolicy.enforcement.audit import records
from dpolicy.enforcement.state import COUNTED, Entry
from dpolicy.errors import Misused
from dpolicy.integrations.registry import CURATOR_TYPES, TO_FILL_IN, entry_of, entry_text
from dpolicy.ledger.events import Event, body_of
from dpolicy.ledger.opening import open_existing
from dpolicy.releases.body import release_of
from dpolicy.rules.compiler import CompiledPolicy

_COLUMNS = ("release", "sequence", "at", "by", "status", "mechanism", "kind", "unit", "attributes")


@click.command()
@ledger_option
@click.option(
    "--to", type=click.Choice(["json", "csv", "registry"]), default="json", help="What to write."
)
@click.option("--release", help="Registry: only this release.")
@click.option("--curator", default=TO_FILL_IN, help="Registry: who publishes.")
@click.option(
    "--curator-type",
    type=click.Choice(CURATOR_TYPES),
    default="Industry",
    help="Registry: what kind of institution that is.",
)
@format_option
def command(
    ledger: str, to: str, release: str | None, curator: str, curator_type: str, format_: str
) -> int:
    """Write every event as JSON lines, every mechanism of every release as CSV, or every release
    that counts as a YAML entry of the OpenDP deployments registry.

    What is written is for programs in either format.
    """
    if release is not None and to != "registry":
        raise click.UsageError("`--release` is for `--to registry`")
    if to == "registry":
        _write_registry(ledger, release, (curator, curator_type))
    elif to == "csv":
        with opened(ledger) as point:
            entries = {entry.charged: entry for entry in point.entries.values()}
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for event, entry in _charged(ledger, entries):
            writer.writerows(_rows(event, entry))
    else:
        store = open_existing(ledger)
        try:
            for record, _ in records(store):
                click.echo(record.payload.decode("utf-8"))
        finally:
            store.close()
    return 0


def _charged(ledger: str, entries: dict[int, Entry]) -> Iterator[tuple[Event, Entry]]:
    """The events that releases are charged for, in the order of the ledger."""
    store = open_existing(ledger)
    try:
        for record, event in records(store):
            if record.sequence in entries:
                yield event, entries[record.sequence]
    finally:
        store.close()


def _write_registry(ledger: str, release: str | None, curator: tuple[str, str]) -> None:
    with opened(ledger) as point:
        entries, policy = point.entries, point.policy
    if policy is None:
        raise Misused("losses are told under a policy: `dpolicy apply` puts one in force")
    if release is not None:
        entries = {release: _spent(release, entries.get(release))}
    counted = {e.charged: e for e in entries.values() if e.status in COUNTED}
    for number, (event, entry) in enumerate(_charged(ledger, counted)):
        click.echo(("---\n" if number else "") + _document(event, entry, policy, curator), nl=False)
    note(f"entries: {len(counted)}; look for `{TO_FILL_IN}` in them")


def _spent(release: str, entry: Entry | None) -> Entry:
    """A release that counts."""
    if entry is None:
        raise Misused(f"there is no release `{release}`")
    if entry.status not in COUNTED:
        raise Misused(f"the release `{release}` was {entry.status}: nothing was spent")
    return entry


def _document(event: Event, entry: Entry, policy: CompiledPolicy, curator: tuple[str, str]) -> str:
    asked = release_of(body_of(event))
    return entry_text(entry_of(asked, policy, event.at[:10], entry.status, curator))


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
