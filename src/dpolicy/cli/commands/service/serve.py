"""`dpolicy serve`: the decision point and its dashboard over HTTP."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import click

from dpolicy.cli.ledger_option import ledger_option, open_decision_point
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.errors import OperationRejected


@click.command()
@ledger_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8500, show_default=True)
@click.option("--access", type=click.Path(path_type=Path), help="Who may do what.")
@click.option("--certificate", type=click.Path(path_type=Path), help="TLS: the certificate.")
@click.option("--key", type=click.Path(path_type=Path), help="TLS: its private key.")
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
    """Serve the ledger over HTTP until it is told to stop. `dpolicy apply` makes a new one.

    Without `--access` only this machine is served, and everybody on it may do everything.
    """
    if access is None and not _is_loopback(host):
        raise click.UsageError(f"`{host}` is reached by others: say with --access who may do what")
    if (certificate is None) != (key is None):
        raise click.UsageError("TLS needs both --certificate and --key")
    try:
        from dpolicy.service.server import ListenAddress, serve
    except ImportError as error:
        raise OperationRejected(
            f"serving needs `{error.name}`: pip install 'dpolicy[server]'"
        ) from None
    with open_decision_point(ledger) as point:
        where = ListenAddress(host, port, certificate, key)
        serve(point, where, access, lambda url: _announce(url, access, format_))
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
        print_note(
            "warning: no --access file: everybody on this machine may do everything, as `local`"
        )
