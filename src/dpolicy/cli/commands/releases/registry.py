"""`dpolicy registry`: print the attacker risk of entries of the deployments registry."""

from __future__ import annotations

from pathlib import Path

import click

from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.integrations.registry.entry_files import load_entries
from dpolicy.integrations.registry.entry_risk import EntryRisk, read_entry_risk
from dpolicy.privacy.budget import format_budget
from dpolicy.privacy.number_text import format_share
from dpolicy.privacy.risk.attacker_risk import AttackerRisk

_HEADER = ("entry", "unit", "model", "covers", "loss", "right", "tpr", "belief")
_NOTES = (
    "upper bounds for an attacker who knows everything but one change of the stated unit:",
    "right: share of correct guesses, from a prior of 50 %",
    "tpr: true-positive rate at a false-positive rate of 1 %",
    "belief: posterior from a prior of 1 %, except with a probability of 1e-7, or of ten times δ",
    "each release: the entry has no bound for all of its releases together",
)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@format_option
def command(files: tuple[Path, ...], format_: str) -> int:
    """Print the attacker risk of the entries in FILES of the OpenDP deployments registry.

    The numbers follow from the loss that an entry states, for the privacy unit that it states.
    """
    risks = [read_entry_risk(entry) for file in files for entry in load_entries(file)]
    if format_ == "json":
        print_json({"entries": [risk.as_json() for risk in risks]})
        return 0
    for note in _NOTES:
        print_note(note)
    rows = [_HEADER, *(_row(risk) for risk in risks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())
    for risk in risks:
        for problem in risk.problems:
            print_note(f"no bound for {risk.entry}: {problem}")
    return 0


def _row(entry: EntryRisk) -> tuple[str, ...]:
    """Return the cells of an entry; a dash where it has no bound."""
    covers = "one release" if entry.is_single_release else "each release"
    loss = "–" if entry.loss is None else format_budget(entry.loss)
    stated = (entry.entry, entry.unit or "–", entry.model or "–", covers, loss)
    return (*stated, *(("no bound", "–", "–") if entry.risk is None else _readings(entry.risk)))


def _readings(risk: AttackerRisk) -> tuple[str, ...]:
    readings = (risk.guess(0.5), risk.true_positive_rate(0.01), risk.posterior(0.01))
    return tuple(format_share(reading) for reading in readings)
