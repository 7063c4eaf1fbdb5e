"""`dpolicy serve`: serve the decision point and the dashboard over HTTP."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import click

from dpolicy.cli.ledger_option import ledger_option, open_decision_point
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.errors import OperationRejected


@click.command()
@ledger_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8500, show_default=True, help="Port."
)
@click.option(
    "--access", type=click.Path(path_type=Path), help="Access file (users, tokens, roles)."
)
@click.option(
    "--certificate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TLS certificate file.",
)
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TLS private key file.",
)
@format_option
def command(
    ledger: str,
    host: str,
    port: int,
    access: Path | None,
    certificate: Path | None,
    key: Path | None,
    format_: str,
) -> int:
    """Serve the HTTP API and the dashboard of a ledger until SIGTERM or Ctrl-C.

    The ledger must exist; `dpolicy apply` creates one. Without --access, the server accepts only
    local connections, and every local user has all roles.
    """
    if access is None and not _is_loopback(host):
        raise click.UsageError(f"`{host}` is reachable from other machines: --access is required")
    if (certificate is None) != (key is None):
        raise click.UsageError("TLS needs both --certificate and --key")
    try:
        from dpolicy.service.server import ListenAddress, serve
    except ImportError as error:
        raise OperationRejected(
            f"serving needs `{error.name}`: pip install 'dpolicy[server]'"
        ) from None
    with open_decision_point(ledger) as point:
        address = ListenAddress(host, port, certificate, key)
        serve(point, address, access, lambda url: _announce(url, access, format_))
    return 0


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _announce(url: str, access: Path | None, format_: str) -> None:
    if format_ == "json":
        print_json({"url": url, "access": None if access is None else str(access)})
    else:
        click.echo(f"serving {url}")
    if access is None:
        print_note("warning: no --access file: every local user has all roles, as `local`")
