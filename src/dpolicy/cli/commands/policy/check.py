"""`dpolicy check`: reads and compiles a policy set; silent if all is well."""

from __future__ import annotations

import click

from dpolicy.cli.output.printing import format_option, print_diagnostics, print_json
from dpolicy.rules.compiler import load_policy


@click.command()
@click.argument("path", type=click.Path())
@format_option
def command(path: str, format_: str) -> int:
    """Read and compile the policy set PATH, a file or a directory. Silent if all is well."""
    policy = load_policy(path)
    if format_ == "text":
        print_diagnostics(policy.warnings)
    else:
        found = [warning.as_json() for warning in policy.warnings]
        print_json({"ok": True, "digest": policy.digest, "diagnostics": found})
    return 0
