"""`dpolicy void`: end a reservation as unused and return its budget."""

from __future__ import annotations

import click

from dpolicy.cli.ledger_option import author_option, ledger_option, open_decision_point
from dpolicy.cli.output.printing import format_option, print_json, print_note


@click.command()
@click.argument("release")
@ledger_option
@author_option
@click.option(
    "--because", required=True, help="Reason; attests that nothing was computed from data."
)
@format_option
def command(release: str, ledger: str, by: str, because: str, format_: str) -> int:
    """Void the reservation RELEASE and return its budget.

    Only for runs that computed nothing from data.
    """
    with open_decision_point(ledger) as point:
        sequence = point.void(release, because, by)
    if format_ == "json":
        print_json({"release": release, "status": "voided", "sequence": sequence})
    else:
        print_note(f"{release} voided at record {sequence}")
    return 0
