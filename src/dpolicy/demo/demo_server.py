"""Demo server: the dashboard on the sample ledger, with example texts, on the local machine."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Thread
from time import sleep
from urllib.request import ProxyHandler, Request, build_opener

import uvicorn
from starlette.applications import Starlette

from dpolicy.demo.sample_ledger import candidate_text, round_text, write_sample_ledger
from dpolicy.ledger.store import LedgerStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.service.app import create_app
from dpolicy.service.auth.access_rules import local_access
from dpolicy.service.server import open_listener

#: One path for every page of the dashboard.
PAGES = (
    "/",
    "/?category=location&page=1",
    "/rule?name=attribute%5Bhome-zone%5D+%C3%97+standard&unit=rider",
    "/rule?name=monthly+%C3%97+standard&unit=rider-month",
    "/rule.svg?name=attribute%5Bhome-zone%5D+%C3%97+standard&unit=rider",
    "/spent",
    "/spent?when=%22home-zone%22+in+attributes&unit=rider&since=2020-01-01",
    "/spent?when=nonsense&unit=rider",
    "/releases",
    "/releases?status=denied",
    "/releases/home-zone-heat-map",
    "/check?release=home-zone-heat-map&factor=3",
    "/policy",
    "/approvals",
    "/rounds?example=1",
    "/log?verify=1",
    "/login",
    "/static/style.css",
)

_HOST = "127.0.0.1"


def company_app(store: LedgerStore, now: datetime) -> Starlette:
    """Create the dashboard application; write the sample year first if the ledger is empty."""
    if next(iter(store.records_after(0)), None) is None:
        write_sample_ledger(store, now)
    app = create_app(DecisionPoint(store), local_access)
    today = now.astimezone(UTC).date()
    app.state.examples = {"candidate": candidate_text(), "round": round_text(today)}
    return app


def serve_company(
    store: LedgerStore, now: datetime, port: int, announce: Callable[[str], None]
) -> None:
    """Serve the dashboard until SIGINT or SIGTERM; pass its URL to `announce`."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with serve_in_thread(company_app(store, now), port) as (url, thread):
        announce(url)
        try:
            thread.join()
        except KeyboardInterrupt:
            return


def fetch_pages(store: LedgerStore, now: datetime) -> Iterator[tuple[str, int]]:
    """Fetch every page once; yield its path and size. Raise `OSError` if a page fails."""
    with serve_in_thread(company_app(store, now), 0) as (url, _):
        for path in PAGES:
            yield path, len(fetch(f"{url}{path}"))


def fetch(url: str, accept: str = "text/html") -> bytes:
    """Fetch a URL of this machine without a proxy."""
    request = Request(url, headers={"Accept": accept})
    with build_opener(ProxyHandler({})).open(request, timeout=60) as response:
        return bytes(response.read())


@contextmanager
def serve_in_thread(app: Starlette, port: int) -> Iterator[tuple[str, Thread]]:
    """Serve an application in a thread; yield its URL and the thread, and stop it at the end."""
    listener = open_listener(_HOST, port)
    config = uvicorn.Config(
        app, ws="none", lifespan="off", log_level="warning", access_log=False, server_header=False
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        sleep(0.02)
    try:
        yield f"http://{_HOST}:{listener.getsockname()[1]}", thread
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        app.state.point.close()
