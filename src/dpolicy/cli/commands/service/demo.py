"""`dpolicy demo`: serve the dashboard with sample data."""

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
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port; default: any free port."
)
@click.option("--no-browser", is_flag=True, help="Print the URL without opening a browser.")
@click.option("--check", is_flag=True, help="Fetch every page once, then exit.")
@format_option
def command(directory: Path | None, port: int, no_browser: bool, check: bool, format_: str) -> int:
    """Serve a dashboard with one year of sample data, on this machine only, until Ctrl-C.

    The ledger is kept in DIRECTORY; without DIRECTORY it is deleted at the end.
    """
    try:
        from dpolicy.demo.demo_server import fetch_pages, serve_company
    except ImportError as error:
        raise OperationRejected(
            f"the demo needs `{error.name}`: pip install 'dpolicy[server]'"
        ) from None
    with _ledger_path(directory) as path:
        store = open_store(str(path))
        if check:
            _print_pages(fetch_pages(store, datetime.now(UTC)), format_)
            return 0

        def announce(url: str) -> None:
            _announce(url, format_)
            if not no_browser:
                webbrowser.open(url)

        serve_company(store, datetime.now(UTC), port, announce)
    return 0


@contextmanager
def _ledger_path(directory: Path | None) -> Iterator[Path]:
    """Yield the path of the ledger; remove a temporary one at the end."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory / "ledger.db"
        return
    with TemporaryDirectory(prefix="dpolicy-demo-") as temporary:
        yield Path(temporary) / "ledger.db"


def _print_pages(fetched: Iterator[tuple[str, int]], format_: str) -> None:
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
        print_note("all data is invented; press Ctrl-C to stop")
