"""`dpolicy import`: charges releases that have already happened."""

from __future__ import annotations

from pathlib import Path

import click

from dpolicy.cli.ledger_option import ledger_option, opened, who_option
from dpolicy.cli.output import format_option, note, print_json
from dpolicy.language.release import load_release


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@ledger_option
@who_option
@click.option("--because", default="", help="Why, for the record.")
@format_option
def command(files: tuple[Path, ...], ledger: str, by: str, because: str, format_: str) -> int:
    """Charge the past releases FILES. They are never refused, also above a budget."""
    releases = [load_release(file) for file in files]
    with opened(ledger, new=True) as point:
        numbers = {r.id: point.import_past(r, because, by) for r in releases}
        broken = [balance for balance in point.budgets() if not balance.holds]
    if format_ == "json":
        exceeded = [balance.as_json() for balance in broken]
        print_json({"imported": numbers, "exceeded": exceeded})
    else:
        note(f"imported {', '.join(numbers)}")
        for balance in broken:
            note(f"now exceeded: {balance.rule.name}  unit {balance.rule.unit}")
    return 0
