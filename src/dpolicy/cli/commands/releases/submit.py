"""`dpolicy submit`: decide releases and charge the allowed ones."""

from __future__ import annotations

from pathlib import Path

import click

from dpolicy.cli.exit_codes import DENIED
from dpolicy.cli.ledger_option import author_option, ledger_option, open_decision_point
from dpolicy.cli.output.decision_text import print_decision
from dpolicy.cli.output.printing import format_option, print_json
from dpolicy.releases.release_parser import load_release


@click.command()
@click.argument("releases", nargs=-1, required=True, type=click.Path(path_type=Path))
@ledger_option
@author_option
@click.option("--dry-run", is_flag=True, help="Print the decision without writing to the ledger.")
@click.option("--reserve", is_flag=True, help="Reserve the cost until `commit` or `void`.")
@format_option
def command(
    releases: tuple[Path, ...], ledger: str, by: str, dry_run: bool, reserve: bool, format_: str
) -> int:
    """Decide RELEASES in the given order, and charge the allowed ones."""
    requests = [load_release(file) for file in releases]
    with open_decision_point(ledger) as point:
        decisions = []
        for release in requests:
            if dry_run:
                decisions.append(point.check(release, by))
            elif reserve:
                decisions.append(point.reserve(release, by))
            else:
                decisions.append(point.submit(release, by))
    if format_ == "json":
        answers = [decision.as_json() for decision in decisions]
        print_json(answers[0] if len(answers) == 1 else answers)
    else:
        for decision in decisions:
            print_decision(decision)
    return 0 if all(decision.allowed for decision in decisions) else DENIED
