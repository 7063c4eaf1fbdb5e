"""`dpolicy export`: export a ledger for other programs."""

from __future__ import annotations

import click

from dpolicy.cli.ledger_option import ledger_option, open_decision_point
from dpolicy.cli.output.printing import format_option, print_note
from dpolicy.integrations.ledger_export import csv_lines, json_lines, registry_entries
from dpolicy.integrations.registry.registry_export import CURATOR_TYPES, PLACEHOLDER


@click.command()
@ledger_option
@click.option(
    "--to", type=click.Choice(["json", "csv", "registry"]), default="json", help="Export format."
)
@click.option("--release", help="Registry: id of the only release to export.")
@click.option(
    "--curator", default=PLACEHOLDER, help="Registry: name of the publishing organisation."
)
@click.option(
    "--curator-type",
    type=click.Choice(CURATOR_TYPES),
    default="Industry",
    help="Registry: type of organisation.",
)
@format_option
def command(
    ledger: str, to: str, release: str | None, curator: str, curator_type: str, format_: str
) -> int:
    """Export the ledger: events as JSON lines, mechanisms as CSV, or registry entries as YAML.

    A registry entry is written for every release that counts as spent. The entries follow the
    OpenDP deployments registry. `--format` does not change the output.
    """
    if release is not None and to != "registry":
        raise click.UsageError("--release needs --to registry")
    with open_decision_point(ledger) as point:
        if to == "registry":
            entries = list(registry_entries(point, release, (curator, curator_type)))
            click.echo("".join(entries), nl=False)
            print_note(f"entries: {len(entries)}; replace every `{PLACEHOLDER}`")
        else:
            for line in (csv_lines if to == "csv" else json_lines)(point):
                click.echo(line, nl=False)
    return 0
