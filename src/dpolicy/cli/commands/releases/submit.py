"""`dpolicy submit`: decide releases and charge the allowed ones."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import click

from dpolicy.cli.exit_codes import DENIED
from dpolicy.cli.ledger_option import author_option, ledger_option, open_decision_point
from dpolicy.cli.output.decision_text import print_decision
from dpolicy.cli.output.offer_text import print_submitted_offer
from dpolicy.cli.output.printing import format_option, print_json
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.releases.release_parser import load_release


@click.command()
@click.argument("releases", nargs=-1, required=True, type=click.Path(path_type=Path))
@ledger_option
@author_option
@click.option("--dry-run", is_flag=True, help="Print the decision without writing to the ledger.")
@click.option("--reserve", is_flag=True, help="Reserve the cost until `commit` or `void`.")
@click.option(
    "--offer",
    type=click.IntRange(min=1),
    help="Submit this counter-offer of the release, under a new id.",
)
@click.option("--id", "new_id", help="Id of the release that --offer submits.")
@format_option
def command(
    releases: tuple[Path, ...],
    ledger: str,
    by: str,
    dry_run: bool,
    reserve: bool,
    offer: int | None,
    new_id: str | None,
    format_: str,
) -> int:
    """Decide RELEASES in the given order, and charge the allowed ones."""
    requests = [load_release(file) for file in releases]
    if new_id is not None and offer is None:
        raise click.UsageError("--id needs --offer; help: write the id into the file")
    if offer is not None:
        if dry_run or len(requests) > 1:
            raise click.UsageError("--offer takes one release and no --dry-run")
        with open_decision_point(ledger) as point:
            submitted = point.submit_offer(requests[0], offer, by, new_id=new_id, reserve=reserve)
        if format_ == "json":
            print_json(submitted.as_json())
        else:
            print_submitted_offer(requests[0].body, submitted.body)
            print_decision(submitted.decision, submitted.body)
        return 0 if submitted.decision.allowed else DENIED
    with open_decision_point(ledger) as point:
        decisions = [_decide(point, release, by, dry_run, reserve) for release in requests]
    if format_ == "json":
        answers = [decision.as_json() for decision in decisions]
        print_json(answers[0] if len(answers) == 1 else answers)
    else:
        for file, release, decision in zip(releases, requests, decisions, strict=True):
            print_decision(decision, release.body, _submit_command(file, ledger, by, reserve))
    return 0 if all(decision.allowed for decision in decisions) else DENIED


def _submit_command(file: Path, ledger: str, by: str, reserve: bool) -> str:
    """Return the command that submits a file to the same ledger; a shell can run it as it is.

    A password in an address is replaced by `PASSWORD`.
    """
    words = ["dpolicy", "submit", str(file)]
    if ledger != os.environ.get("DPOLICY_LEDGER"):
        words += ["--ledger", _without_password(ledger)]
    if by:
        words += ["--by", by]
    return shlex.join([*words, *(["--reserve"] if reserve else [])])


def _without_password(address: str) -> str:
    return re.sub(r"(?<=://)([^:@/]*):[^@]*@", r"\1:PASSWORD@", address)


def _decide(
    point: DecisionPoint, release: Release, by: str, dry_run: bool, reserve: bool
) -> Decision:
    if dry_run:
        return point.check(release, by)
    return point.reserve(release, by) if reserve else point.submit(release, by)
