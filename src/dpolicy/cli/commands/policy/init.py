"""`dpolicy init`: write a commented starter policy, a release and a case."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from dpolicy.cli.output.printing import format_option, print_json, print_note


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@format_option
def command(directory: Path, format_: str) -> int:
    """Write a commented starter policy, a release and a case into DIRECTORY."""
    starter = files("dpolicy.cli") / "starter"
    names = ["policy.yaml", "policy_test.yaml", "releases/page-views.yaml"]
    existing = [name for name in names if (directory / name).exists()]
    if existing:
        raise click.UsageError(f"{directory / existing[0]} already exists; nothing was written")
    for name in names:
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(starter.joinpath(name).read_text("utf-8"), "utf-8")
        print_note(f"wrote {target}")
    print_note(f"next: dpolicy check {directory} && dpolicy rules {directory}")
    if format_ == "json":
        print_json({"wrote": [str(directory / name) for name in names]})
    return 0
