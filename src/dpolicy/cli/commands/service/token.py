"""`dpolicy token`: generate a bearer token and its line for the access file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.errors import OperationRejected


@click.command()
@click.option(
    "--days",
    type=click.IntRange(1, 3660),
    default=90,
    show_default=True,
    help="Token lifetime in days.",
)
@format_option
def command(days: int, format_: str) -> int:
    """Generate a bearer token. The secret is printed once and never stored.

    The command also prints the line to add to the access file, under the `tokens` of a person.
    """
    try:
        from dpolicy.service.auth.access_rules import generate_token
    except ImportError as error:
        raise OperationRejected(
            f"tokens need `{error.name}`: pip install 'dpolicy[server]'"
        ) from None
    secret, digest = generate_token()
    expires = (datetime.now(UTC) + timedelta(days=days)).date().isoformat()
    if format_ == "json":
        print_json({"token": secret, "sha256": digest, "expires": expires})
    else:
        click.echo(secret)
        print_note(
            "keep the token secret; it is printed once. Add to the access file, under `tokens`:"
        )
        print_note(f'  - {{sha256: "{digest}", expires: {expires}}}')
    return 0
