"""`dpolicy schema`: prints the JSON Schema of policy files, for editors."""

from __future__ import annotations

import click

from dpolicy.cli.output.printing import format_option, print_json
from dpolicy.policy.json_schema import policy_schema


@click.command()
@format_option
def command(format_: str) -> int:
    """Print the JSON Schema of policy files, for editors. It is JSON in either format."""
    print_json(policy_schema())
    return 0
