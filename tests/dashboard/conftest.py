"""The made-up company, built once, and its dashboard on an address of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from dpolicy.demo.demo_server import company_app, serve_in_thread
from dpolicy.demo.sample_ledger import write_sample_ledger
from dpolicy.ledger.chain import Record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint

#: When the company's year ends, for tests: now, since pages look at the clock.
NOW = datetime.now(UTC)


@pytest.fixture(scope="session")
def year() -> list[Record]:
    """The records of the company's year."""
    store = MemoryStore()
    write_sample_ledger(store, NOW)
    return list(store.records_after(0))


@pytest.fixture(scope="session")
def company(year: list[Record]) -> DecisionPoint:
    """The company, to look at."""
    return DecisionPoint(MemoryStore(year), lambda: NOW)


@pytest.fixture(scope="session")
def site(year: list[Record]) -> Iterator[str]:
    """The company's dashboard, to look at."""
    with serve_in_thread(company_app(MemoryStore(year), NOW), 0) as (url, _):
        yield url


@pytest.fixture
def own_site(year: list[Record]) -> Iterator[str]:
    """The company's dashboard, which a test may change."""
    with serve_in_thread(company_app(MemoryStore(year), NOW), 0) as (url, _):
        yield url


class Answer:
    """What a server answered."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Fetch = Callable[..., Answer]
Fields = list[tuple[str, str]] | None


@pytest.fixture
def fetch(site: str) -> Fetch:
    """Asks the dashboard."""
    return asking(site)


@pytest.fixture
def fetch_own(own_site: str) -> Fetch:
    """Asks a dashboard which a test may change."""
    return asking(own_site)


def asking(site: str) -> Fetch:
    """Asks for a page, or sends a form."""

    def ask(path: str, fields: Fields = None, accept: str = "text/html", **more: str) -> Answer:
        return asked(f"{site}{path}", fields, {"Accept": accept, **more})

    return ask


def asked(address: str, fields: Fields, headers: dict[str, str]) -> Answer:
    """One request, past any proxy."""
    data = None if fields is None else urlencode(fields).encode()
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(Request(address, data, headers), timeout=60) as answer:
            return Answer(answer.status, _lower(answer.headers), answer.read())
    except HTTPError as error:
        with error:
            return Answer(error.code, _lower(error.headers), error.read())


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
