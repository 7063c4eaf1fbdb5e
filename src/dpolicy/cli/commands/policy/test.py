"""`dpolicy test`: run the cases of `*_test.yaml` files."""

from __future__ import annotations

from pathlib import Path

import click

from dpolicy.cases.case_file import load_case
from dpolicy.cases.runner import StepOutcome, run_case
from dpolicy.cli.exit_codes import CASE_FAILED
from dpolicy.cli.output.printing import format_option, print_json


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@format_option
def command(paths: tuple[Path, ...], format_: str) -> int:
    """Run the cases in PATHS: files, or directories with `*_test.yaml` files."""
    files = [file for path in paths for file in _case_files(path)]
    if not files:
        raise click.UsageError("PATHS contain no `*_test.yaml` file")
    outcomes = [outcome for file in files for outcome in run_case(load_case(file))]
    failed = [outcome for outcome in outcomes if outcome.problem is not None]
    if format_ == "json":
        print_json(
            {
                "passed": len(outcomes) - len(failed),
                "failed": len(failed),
                "steps": [_json(outcome) for outcome in outcomes],
            }
        )
    else:
        for outcome in failed:
            click.echo(f"{outcome.position}: {outcome.step} failed: {outcome.problem}")
        click.echo(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed")
    return CASE_FAILED if failed else 0


def _case_files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted([*path.rglob("*_test.yaml"), *path.rglob("*_test.yml")])
    return [path]


def _json(outcome: StepOutcome) -> dict[str, object]:
    return {
        "place": outcome.position,
        "step": outcome.step,
        "passed": outcome.problem is None,
        "problem": outcome.problem,
    }
