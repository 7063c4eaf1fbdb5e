"""`dpolicy schema`: prints the JSON Schema of policy files, for editors."""

from __future__ import annotations

import click

from dpolicy.cli.output import print_json
from dpolicy.language.json_schema import policy_schema


@click.command()
def command() -> int:
    """Print the JSON Schema of policy files, for editors."""
    print_json(policy_schema())
    return 0
