"""`dpolicy simulate`: rounds of requests with unlocking and rotation, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import click

from dpolicy.allocation.rounds import Outcome
from dpolicy.allocation.scenario import load_scenario, simulate
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.cli.output import format_option, print_json


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--strategy", type=click.Choice(tuple(STRATEGIES)), help="Instead of the scenario's.")
@click.option("--seed", type=int, help="Requests of a round arrive in another order.")
@format_option
def command(scenario: Path, strategy: str | None, seed: int | None, format_: str) -> int:
    """Run the rounds of SCENARIO and tell what each of them chose; nothing is written."""
    said = load_scenario(scenario)
    if strategy is not None:
        said = replace(said, strategy=strategy)
    outcomes = list(simulate(said, seed, process_time))
    if format_ == "json":
        print_json({"strategy": said.strategy, "seed": seed, **_totals(outcomes)})
        return 0
    click.echo("round  asked  accepted  utility  bound  gap %  seconds")
    for o in outcomes:
        shown = f"{o.utility:7g}  {o.bound:5g}  {100 * o.gap:5.1f}  {o.seconds:7.3f}"
        click.echo(f"{o.number:5}  {o.considered:5}  {len(o.accepted):8}  {shown}")
    utility = sum(o.utility for o in outcomes)
    accepted = sum(len(o.accepted) for o in outcomes)
    click.echo(f"{said.strategy}: utility {utility:g}, {accepted} accepted")
    return 0


def _totals(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "utility": sum(o.utility for o in outcomes),
        "accepted": sum(len(o.accepted) for o in outcomes),
        "rounds": [
            {
                "round": o.number,
                "considered": o.considered,
                "fit-alone": o.fitting,
                "accepted": list(o.accepted),
                "utility": o.utility,
                "bound": o.bound,
                "gap": o.gap,
                "rows": o.rows,
                "seconds": o.seconds,
            }
            for o in outcomes
        ],
    }
