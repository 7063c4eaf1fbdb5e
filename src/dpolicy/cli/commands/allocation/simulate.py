"""`dpolicy simulate`: simulates rounds with unlocking and cohort rotation, in memory."""

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
@click.option(
    "--strategy",
    type=click.Choice(tuple(STRATEGIES)),
    help="Strategy; overrides the one in the scenario.",
)
@click.option("--seed", type=int, help="Seed for shuffling the requests of a round.")
@format_option
def command(scenario: Path, strategy: str | None, seed: int | None, format_: str) -> int:
    """Simulate the rounds of SCENARIO and print the result of each; no ledger is written."""
    loaded = load_scenario(scenario)
    if strategy is not None:
        loaded = replace(loaded, strategy=strategy)
    simulation, rounds = simulate_scenario(loaded, seed, process_time)
    for rule in simulation.rules_without_cohorts:
        click.echo(
            f"note: `{rule}` is not partitioned by cohort, so unlocking does not apply to it",
            err=True,
        )
    outcomes = list(_print_rounds(rounds, len(loaded.rounds), as_text=format_ == "text"))
    if format_ == "json":
        print_json({"strategy": loaded.strategy, "seed": seed, **_totals(outcomes)})
        return 0
    utility = sum(o.utility for o in outcomes)
    selected = sum(len(o.selected) for o in outcomes)
    click.echo(f"{loaded.strategy}: utility {utility:g}, {selected} selected")
    return 0


def _print_rounds(
    outcomes: Iterator[RoundOutcome], rounds: int, *, as_text: bool
) -> Iterator[RoundOutcome]:
    """Print one line per round, or a progress counter on a terminal; yield the outcomes."""
    if as_text:
        click.echo("round  considered  selected  utility  bound  gap %  seconds")
    for count, o in enumerate(outcomes, 1):
        if as_text:
            numbers = f"{o.utility:7g}  {o.bound:5g}  {100 * o.gap:5.1f}  {o.total_seconds:7.3f}"
            click.echo(f"{o.number:5}  {o.considered:10}  {len(o.selected):8}  {numbers}")
        elif sys.stderr.isatty():
            click.echo(f"\rround {count} of {rounds}", err=True, nl=count == rounds)
        yield o


def _totals(outcomes: Sequence[RoundOutcome]) -> dict[str, Any]:
    return {
        "utility": sum(o.utility for o in outcomes),
        "selected": sum(len(o.selected) for o in outcomes),
        "rounds": [
            {
                "round": o.number,
                "considered": o.considered,
                "feasible-alone": o.feasible_alone,
                "selected": list(o.selected),
                "utility": o.utility,
                "bound": o.bound,
                "gap": o.gap,
                "rows": o.rows,
                "seconds": o.total_seconds,
            }
            for o in outcomes
        ],
    }
