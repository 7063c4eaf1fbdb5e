"""`dpolicy demo`: a made-up company on a ledger of its own, dashboard included."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.errors import OperationRejected
from dpolicy.ledger.store_address import open_store


@click.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Any free one if left out.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--check", is_flag=True, help="Fetch every page once, and end.")
@format_option
def command(directory: Path | None, port: int, no_browser: bool, check: bool, format_: str) -> int:
    """Show a made-up company: a year of releases, a denied one, a reservation, a round.

    It is served on this machine only, until Ctrl-C. Its ledger is kept in DIRECTORY if that is
    given, and forgotten otherwise.
    """
    try:
        from dpolicy.demo.demo_server import fetch_pages, serve_company
    except ImportError as error:
        raise OperationRejected(
            f"the demo needs `{error.name}`: pip install 'dpolicy[server]'"
        ) from None
    with _place(directory) as place:
        store = open_store(str(place))
        if check:
            _print(fetch_pages(store, datetime.now(UTC)), format_)
            return 0

        def announce(url: str) -> None:
            _announce(url, format_)
            if not no_browser:
                webbrowser.open(url)

        serve_company(store, datetime.now(UTC), port, announce)
    return 0


@contextmanager
def _place(directory: Path | None) -> Iterator[Path]:
    """Where the ledger is kept."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory / "ledger.db"
        return
    with TemporaryDirectory(prefix="dpolicy-demo-") as temporary:
        yield Path(temporary) / "ledger.db"


def _print(fetched: Iterator[tuple[str, int]], format_: str) -> None:
    if format_ == "json":
        print_json({"pages": [{"address": address, "bytes": size} for address, size in fetched]})
        return
    for address, size in fetched:
        click.echo(f"{size:>9,} bytes  {address}")


def _announce(url: str, format_: str) -> None:
    if format_ == "json":
        print_json({"url": url})
    else:
        click.echo(f"Marlow Mobility is at {url}")
        print_note("everything in it is made up; Ctrl-C ends it")
