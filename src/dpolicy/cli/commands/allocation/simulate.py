"""`dpolicy simulate`: rounds of requests with unlocking and rotation, in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import click

from dpolicy.allocation.scenario_file import load_scenario, simulate_scenario
from dpolicy.allocation.simulation import RoundOutcome
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.cli.output.printing import format_option, print_json


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
    simulation, coming = simulate_scenario(said, seed, process_time)
    for rule in simulation.rules_without_cohorts:
        click.echo(
            f"note: `{rule}` is not split by cohort, so unlocking does not hold it back", err=True
        )
    outcomes = list(_shown(coming, len(said.rounds), as_text=format_ == "text"))
    if format_ == "json":
        print_json({"strategy": said.strategy, "seed": seed, **_totals(outcomes)})
        return 0
    utility = sum(o.utility for o in outcomes)
    accepted = sum(len(o.accepted) for o in outcomes)
    click.echo(f"{said.strategy}: utility {utility:g}, {accepted} accepted")
    return 0


def _shown(coming: Iterator[RoundOutcome], rounds: int, *, as_text: bool) -> Iterator[RoundOutcome]:
    """The outcomes; a line each as they come, or for programs a counter on a terminal."""
    if as_text:
        click.echo("round  asked  accepted  utility  bound  gap %  seconds")
    for count, o in enumerate(coming, 1):
        if as_text:
            shown = f"{o.utility:7g}  {o.bound:5g}  {100 * o.gap:5.1f}  {o.total_seconds:7.3f}"
            click.echo(f"{o.number:5}  {o.considered:5}  {len(o.accepted):8}  {shown}")
        elif sys.stderr.isatty():
            click.echo(f"\rround {count} of {rounds}", err=True, nl=count == rounds)
        yield o


def _totals(outcomes: Sequence[RoundOutcome]) -> dict[str, Any]:
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
                "seconds": o.total_seconds,
            }
            for o in outcomes
        ],
    }
