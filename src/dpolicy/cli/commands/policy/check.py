"""`dpolicy check`: compile a policy set and print its diagnostics."""

from __future__ import annotations

import click

from dpolicy.cli.output.printing import format_option, print_diagnostics, print_json
from dpolicy.rules.compiler import load_policy


@click.command()
@click.argument("path", type=click.Path())
@format_option
def command(path: str, format_: str) -> int:
    """Compile the policy set PATH (a file or a directory). Prints nothing if it is valid."""
    policy = load_policy(path)
    if format_ == "text":
        print_diagnostics(policy.warnings)
    else:
        diagnostics = [warning.as_json() for warning in policy.warnings]
        print_json({"ok": True, "digest": policy.digest, "diagnostics": diagnostics})
    return 0
