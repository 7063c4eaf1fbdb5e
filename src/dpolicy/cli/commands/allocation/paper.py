"""`dpolicy paper`: repeats the paper's evaluation and compares it with the published values."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import click

from dpolicy.allocation.solving.highs import is_installed
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.errors import OperationRejected
from dpolicy.evaluation.comparison import compare_with_paper, format_csv, format_markdown
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

#: Total budgets and strategies of `--quick`: one per panel of the figures, as in the paper.
QUICK_TOTALS, QUICK_STRATEGIES = (10,), ("efficient",)


@dataclass(frozen=True, slots=True)
class PaperOptions:
    """Options of the command, as click passes them."""

    scenarios: Sequence[str]
    totals: Sequence[str]
    strategies: Sequence[str]
    quick: bool
    seeds: int | None
    profile: str
    parameters: str
    rounds: int
    processes: int
    out: Path | None
    export: Path | None
    format_: str

    def runs(self) -> list[EvaluationRun]:
        """Return all combinations of scenarios, totals, systems, strategies and seeds."""
        combinations = product(
            self.scenarios or PUBLISHED,
            [int(total) for total in self.totals] or (QUICK_TOTALS if self.quick else TOTALS),
            SYSTEMS,
            self.strategies or _default_strategies(self.quick),
            [None] if self.seeds is None else range(self.seeds),
        )
        return [
            EvaluationRun(
                scenario,
                total,
                system,
                strategy,
                seed,
                as_run=self.parameters == "as-run",
                profile=self.profile,
                rounds=self.rounds,
            )
            for scenario, total, system, strategy, seed in combinations
        ]


@click.command()
@click.option(
    "--scenario",
    "scenarios",
    type=click.Choice(tuple(SCENARIOS)),
    multiple=True,
    help="Scenarios; repeatable.  [default: S1, S2 and S3]",
)
@click.option(
    "--total",
    "totals",
    type=click.Choice([str(total) for total in TOTALS]),
    multiple=True,
    help="Total budgets ε_t; repeatable.  [default: all]",
)
@click.option(
    "--strategy",
    "strategies",
    type=click.Choice(tuple(STRATEGIES)),
    multiple=True,
    help="Strategies; `efficient` is the paper's DPK; repeatable.  [default: efficient and price]",
)
@click.option("--quick", is_flag=True, help="Use ε_t = 10 and `efficient` by default.")
@click.option(
    "--seeds",
    type=click.IntRange(1),
    help="Number of seeds for generated workloads.  [default: the bundled workloads]",
)
@click.option(
    "--profile",
    type=click.Choice(["classic", "anchored"]),
    default="classic",
    show_default=True,
    help="Threshold profile for (ε, δ) budgets.",
)
@click.option(
    "--parameters",
    type=click.Choice(["as-run", "as-written"]),
    default="as-run",
    show_default=True,
    help="Parameter set: as used for the published figures, or as in the paper's text.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, len(ROUNDS)),
    default=len(ROUNDS),
    help="Number of rounds to run.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 1024),
    default=os.cpu_count(),
    help="Number of parallel processes.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Output directory for tables and figures."
)
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    help="Output directory for policies and releases; nothing is run.",
)
@format_option
def command(**values: Any) -> int:
    """Run the scenarios of the paper for DPolicy and for Cohere's single budget.

    Prints utility and spending in the scopes of each scenario beside the published values. Every
    run has a separate process. Files are written only under --out and --export.
    """
    options = PaperOptions(**values)
    runs = options.runs()
    if options.export is not None:
        return _export(runs, options.export)
    results = _run_with_progress(runs, options.processes)
    if options.format_ == "json":
        print_json({"runs": [result.as_json() for result in results]})
    else:
        click.echo(format_markdown(compare_with_paper(results)), nl=False)
    if options.out is not None:
        _write(results, options.out)
    return 0


def _default_strategies(quick: bool) -> Sequence[str]:
    """Return the strategy of the paper and, if HiGHS is installed, `price`."""
    if quick or is_installed():
        return QUICK_STRATEGIES if quick else ("efficient", "price")
    print_note("the strategy `price` needs HiGHS: pip install 'dpolicy[allocation]'")
    return ("efficient",)


def _run_with_progress(runs: Sequence[EvaluationRun], processes: int) -> list[EvaluationResult]:
    """Execute the runs with progress on standard error; return the results in the given order."""
    by_run: dict[EvaluationRun, EvaluationResult] = {}
    same_line = sys.stderr.isatty()
    for result in run_all(runs, processes):
        run = result.run
        by_run[run] = result
        name = f"{run.scenario} ε_t {run.total} {run.system} {run.strategy}"
        text = f"{len(by_run)} of {len(runs)}: {name}"
        click.echo(f"\r\033[K{text}" if same_line else text, err=True, nl=not same_line)
    if same_line:
        click.echo(err=True)
    return [by_run[run] for run in runs]


def _export(runs: Sequence[EvaluationRun], directory: Path) -> int:
    written: set[Path] = set()
    for run in runs:
        seed = "" if run.seed is None else f"-seed-{run.seed}"
        run_directory = directory / f"{run.scenario}-{run.total}-{run.system.lower()}{seed}"
        if run_directory not in written:
            export_run(run, run_directory)
            written.add(run_directory)
    click.echo("\n".join(str(path / "scenario.yaml") for path in sorted(written)))
    return 0


def _write(results: Sequence[EvaluationResult], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    compared = compare_with_paper(results)
    (out / "bars.md").write_text(format_markdown(compared), "utf-8")
    (out / "runs.csv").write_text(format_csv(results), "utf-8")
    paths = [out / "bars.md", out / "runs.csv"]
    try:
        paths += draw(compared, out)
    except OperationRejected as error:
        print_note(f"no figures: {error}")
    for path in paths:
        print_note(f"wrote {path}")
