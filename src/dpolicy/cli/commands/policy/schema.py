"""`dpolicy schema`: print the JSON Schema of policy files."""

from __future__ import annotations

import click

from dpolicy.cli.output.printing import format_option, print_json
from dpolicy.policy.json_schema import policy_schema


@click.command()
@format_option
def command(format_: str) -> int:
    """Print the JSON Schema of policy files, for editors. The output is always JSON."""
    print_json(policy_schema())
    return 0
