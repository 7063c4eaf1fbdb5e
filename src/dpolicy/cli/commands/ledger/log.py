"""`dpolicy log`: print the events of a ledger."""

from __future__ import annotations

import click

from dpolicy.cli.ledger_option import ledger_option
from dpolicy.cli.output.printing import format_option
from dpolicy.ledger.events import (
    Event,
    PolicyApplied,
    PolicyProposed,
    ProposalAnswered,
    RelabellingProposed,
    ReleaseDecided,
    ReleaseImported,
    VoidProposed,
)
from dpolicy.ledger.store_address import open_existing
from dpolicy.pdp.audits.audit import records_with_events
from dpolicy.text.diagnostics import replace_unprintable


@click.command()
@ledger_option
@format_option
def command(ledger: str, format_: str) -> int:
    """Print every event of the ledger, oldest first."""
    store = open_existing(ledger)
    try:
        for record, event in records_with_events(store):
            if format_ == "json":
                click.echo(record.payload.decode("utf-8"))
            else:
                click.echo(
                    f"{record.sequence:>6}  {event.at}  {replace_unprintable(_event_text(event))}"
                )
    finally:
        store.close()
    return 0


def _event_text(event: Event) -> str:
    if isinstance(event, PolicyApplied | PolicyProposed):
        word = "policy applied" if isinstance(event, PolicyApplied) else "policy proposed"
        return f"{word:<16} {event.digest[:19]}…  {event.by}  {event.because}".rstrip()
    if isinstance(event, ProposalAnswered):
        word = "approved" if event.approved else "rejected"
        return f"{word:<16} proposal {event.proposal}  {event.by}  {event.because}".rstrip()
    if isinstance(event, VoidProposed | RelabellingProposed):
        word = "void proposed" if isinstance(event, VoidProposed) else "relabel proposed"
        return f"{word:<16} {event.release}  {event.by}  {event.because}".rstrip()
    if isinstance(event, ReleaseDecided):
        word = "denied" if not event.allowed else "reserved" if event.reserved else "allowed"
        return f"{word:<16} {event.release}  {event.by}".rstrip()
    word = type(event).__name__.removeprefix("Release").lower()
    because = getattr(event, "because", "")
    if isinstance(event, ReleaseImported):
        day = f"of {event.released}  " if event.released else ""
        return f"{word:<16} {event.release}  {day}{event.by}  {because}".rstrip()
    return f"{word:<16} {getattr(event, 'release', '')}  {because}".rstrip()
