"""`dpolicy export`: the history of a ledger for other programs."""

from __future__ import annotations

import click

from dpolicy.cli.ledger_option import ledger_option, open_decision_point
from dpolicy.cli.output.printing import format_option, print_note
from dpolicy.integrations.ledger_export import csv_lines, json_lines, registry_entries
from dpolicy.integrations.registry.registry_export import CURATOR_TYPES, PLACEHOLDER


@click.command()
@ledger_option
@click.option(
    "--to", type=click.Choice(["json", "csv", "registry"]), default="json", help="What to write."
)
@click.option("--release", help="Registry: only this release.")
@click.option("--curator", default=PLACEHOLDER, help="Registry: who publishes.")
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
    with open_decision_point(ledger) as point:
        if to == "registry":
            entries = list(registry_entries(point, release, (curator, curator_type)))
            click.echo("".join(entries), nl=False)
            print_note(f"entries: {len(entries)}; look for `{PLACEHOLDER}` in them")
        else:
            for line in (csv_lines if to == "csv" else json_lines)(point):
                click.echo(line, nl=False)
    return 0
