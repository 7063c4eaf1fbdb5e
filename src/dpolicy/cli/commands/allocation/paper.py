"""`dpolicy paper`: the paper's evaluation again, its bars beside ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import click

from dpolicy.allocation.solving.highs import is_installed
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.errors import OperationRejected
from dpolicy.evaluation.comparison import comparison_bars, format_csv, format_markdown
from dpolicy.evaluation.experiment import (
    PUBLISHED,
    SCENARIOS,
    SYSTEMS,
    EvaluationResult,
    EvaluationRun,
    run_all,
)
from dpolicy.evaluation.figures import draw
from dpolicy.evaluation.run_export import export_run
from dpolicy.evaluation.workload import ROUNDS, TOTALS

#: What `--quick` runs: one bar of every panel, with the strategy of the paper.
QUICK_TOTALS, QUICK_STRATEGIES = (10,), ("efficient",)


@click.command()
@click.option(
    "--scenario",
    "scenarios",
    type=click.Choice(tuple(SCENARIOS)),
    multiple=True,
    help="Several may be given.  [default: S1, S2 and S3]",
)
@click.option(
    "--total",
    "totals",
    type=click.Choice([str(total) for total in TOTALS]),
    multiple=True,
    help="Total budgets ε_t.  [default: all]",
)
@click.option(
    "--strategy",
    "strategies",
    type=click.Choice(tuple(STRATEGIES)),
    multiple=True,
    help="How to choose; `efficient` is the paper's DPK.  [default: efficient and price]",
)
@click.option(
    "--quick", is_flag=True, help="ε_t = 10 with `efficient` only, unless said otherwise."
)
@click.option(
    "--seeds", type=click.IntRange(1), help="Workloads from seeds 0, 1, … instead of ready-made."
)
@click.option(
    "--profile",
    type=click.Choice(["classic", "anchored"]),
    default="classic",
    show_default=True,
    help="How (ε, δ) becomes thresholds.",
)
@click.option(
    "--parameters",
    type=click.Choice(["as-run", "as-written"]),
    default="as-run",
    show_default=True,
    help="Those behind the published figures, or those in the paper's text.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, len(ROUNDS)),
    default=len(ROUNDS),
    help="Only the first ones.",
)
@click.option(
    "--processes", type=click.IntRange(1), default=os.cpu_count(), help="How many at once."
)
@click.option("--out", type=click.Path(path_type=Path), help="Write tables and figures there.")
@click.option(
    "--export",
    "to",
    type=click.Path(path_type=Path),
    help="Run nothing; write policies and releases.",
)
@format_option
def command(
    scenarios: Sequence[str],
    totals: Sequence[str],
    strategies: Sequence[str],
    quick: bool,
    seeds: int | None,
    profile: str,
    parameters: str,
    rounds: int,
    processes: int,
    out: Path | None,
    to: Path | None,
    format_: str,
) -> int:
    """Run the scenarios of the paper for DPolicy and for Cohere's single budget.

    Prints utility and what was spent in the scopes of each scenario beside the published values.
    Every run is a process of its own; nothing is written but under --out and --export.
    """
    runs = [
        EvaluationRun(
            scenario,
            total,
            system,
            strategy,
            seed,
            as_run=parameters == "as-run",
            profile=profile,
            rounds=rounds,
        )
        for scenario, total, system, strategy, seed in product(
            scenarios or PUBLISHED,
            [int(t) for t in totals] or (QUICK_TOTALS if quick else TOTALS),
            SYSTEMS,
            strategies or _strategies(quick),
            [None] if seeds is None else range(seeds),
        )
    ]
    if to is not None:
        return _export(runs, to)
    results = _results(runs, processes)
    if format_ == "json":
        print_json({"runs": [result.as_json() for result in results]})
    else:
        click.echo(format_markdown(comparison_bars(results)), nl=False)
    if out is not None:
        _write(results, out)
    return 0


def _strategies(quick: bool) -> Sequence[str]:
    """The paper's and, where it can be had, a better one."""
    if quick or is_installed():
        return QUICK_STRATEGIES if quick else ("efficient", "price")
    print_note("without HiGHS there is no `price`: pip install 'dpolicy[allocation]'")
    return ("efficient",)


def _results(runs: Sequence[EvaluationRun], processes: int) -> list[EvaluationResult]:
    """Results in the order of their runs, with a line of progress on standard error."""
    done: dict[EvaluationRun, EvaluationResult] = {}
    same_line = sys.stderr.isatty()
    for result in run_all(runs, processes):
        run = done.setdefault(result.run, result).run
        what = f"{run.scenario} ε_t {run.total} {run.system} {run.strategy}"
        told = f"{len(done)} of {len(runs)}: {what}"
        click.echo(f"\r\033[K{told}" if same_line else told, err=True, nl=not same_line)
    if same_line:
        click.echo(err=True)
    return [done[run] for run in runs]


def _export(runs: Sequence[EvaluationRun], to: Path) -> int:
    written: set[Path] = set()
    for run in runs:
        seed = "" if run.seed is None else f"-seed-{run.seed}"
        directory = to / f"{run.scenario}-{run.total}-{run.system.lower()}{seed}"
        if directory not in written:
            export_run(run, directory)
            written.add(directory)
    click.echo("\n".join(str(path / "scenario.yaml") for path in sorted(written)))
    return 0


def _write(results: Sequence[EvaluationResult], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    bars = comparison_bars(results)
    (out / "bars.md").write_text(format_markdown(bars), "utf-8")
    (out / "runs.csv").write_text(format_csv(results), "utf-8")
    paths = [out / "bars.md", out / "runs.csv"]
    try:
        paths += draw(bars, out)
    except OperationRejected as error:
        print_note(f"no figures: {error}")
    for path in paths:
        print_note(f"wrote {path}")
