"""The company's ledger → its dashboard on this machine, with texts to try; a walk through it."""

from __future__ import annotations

import signal
import socket
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

#: One address of every page.
PAGES = (
    "/",
    "/?category=location&page=1",
    "/rule?name=attribute%5Bhome-zone%5D+%C3%97+standard&unit=rider",
    "/rule?name=monthly+%C3%97+standard&unit=rider-month",
    "/rule.svg?name=attribute%5Bhome-zone%5D+%C3%97+standard&unit=rider",
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
    """The dashboard of the company; its year is written first, if the ledger is new."""
    if next(iter(store.records_after(0)), None) is None:
        write_sample_ledger(store, now)
    app = create_app(DecisionPoint(store), local_access)
    today = now.astimezone(UTC).date()
    app.state.examples = {"candidate": candidate_text(), "round": round_text(today)}
    return app


def serve_company(
    store: LedgerStore, now: datetime, port: int, announce: Callable[[str], None]
) -> None:
    """Serve the company until SIGINT or SIGTERM; `announce` is told where it is."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with serve_in_thread(company_app(store, now), port) as (url, running):
        announce(url)
        try:
            running.join()
        except KeyboardInterrupt:
            return


def fetch_pages(store: LedgerStore, now: datetime) -> Iterator[tuple[str, int]]:
    """Every page, fetched once, with its size; raises `OSError` for one that is not there."""
    with serve_in_thread(company_app(store, now), 0) as (url, _):
        for address in PAGES:
            yield address, len(fetch(f"{url}{address}"))


def fetch(address: str, accept: str = "text/html") -> bytes:
    """What is at an address of this machine; never asks a proxy."""
    request = Request(address, headers={"Accept": accept})
    with build_opener(ProxyHandler({})).open(request, timeout=60) as answer:
        return bytes(answer.read())


@contextmanager
def serve_in_thread(app: Starlette, port: int) -> Iterator[tuple[str, Thread]]:
    """An application at an address of this machine, for as long as the block lasts."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((_HOST, port))
    config = uvicorn.Config(
        app, ws="none", lifespan="off", log_level="warning", access_log=False, server_header=False
    )
    server = uvicorn.Server(config)
    running = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    running.start()
    while not server.started and running.is_alive():
        sleep(0.02)
    try:
        yield f"http://{_HOST}:{listening.getsockname()[1]}", running
    finally:
        server.should_exit = True
        running.join(timeout=10)
        app.state.point.close()
