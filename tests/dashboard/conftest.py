"""Fixtures: the sample ledger of the demo company, written once, and its dashboard."""

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

#: End of the sample year: the current time, because pages use the clock.
NOW = datetime.now(UTC)


@pytest.fixture(scope="session")
def sample_records() -> list[Record]:
    """Return the records of the sample ledger."""
    store = MemoryStore()
    write_sample_ledger(store, NOW)
    return list(store.records_after(0))


@pytest.fixture(scope="session")
def company(sample_records: list[Record]) -> DecisionPoint:
    """Return a decision point on the sample ledger; tests must not change it."""
    return DecisionPoint(MemoryStore(sample_records), lambda: NOW)


@pytest.fixture(scope="session")
def site(sample_records: list[Record]) -> Iterator[str]:
    """Serve the dashboard of the sample ledger; tests must not change it."""
    with serve_in_thread(company_app(MemoryStore(sample_records), NOW), 0) as (url, _):
        yield url


@pytest.fixture
def own_site(sample_records: list[Record]) -> Iterator[str]:
    """Serve a dashboard of the sample ledger that the test may change."""
    with serve_in_thread(company_app(MemoryStore(sample_records), NOW), 0) as (url, _):
        yield url


class PageResponse:
    """Response of the server."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Fetch = Callable[..., PageResponse]
FormFields = list[tuple[str, str]] | None


@pytest.fixture
def fetch(site: str) -> Fetch:
    """Return a function that sends requests to the dashboard."""
    return requests_to(site)


@pytest.fixture
def fetch_own(own_site: str) -> Fetch:
    """Return a function that sends requests to the dashboard that the test may change."""
    return requests_to(own_site)


def requests_to(site: str) -> Fetch:
    """Return a function that fetches a page, or sends a form if it has fields."""

    def fetch_page(
        path: str, fields: FormFields = None, accept: str = "text/html", **headers: str
    ) -> PageResponse:
        return send_request(f"{site}{path}", fields, {"Accept": accept, **headers})

    return fetch_page


def send_request(url: str, fields: FormFields, headers: dict[str, str]) -> PageResponse:
    """Send one request without a proxy."""
    data = None if fields is None else urlencode(fields).encode()
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(Request(url, data, headers), timeout=60) as response:
            return PageResponse(response.status, _lower(response.headers), response.read())
    except HTTPError as error:
        with error:
            return PageResponse(error.code, _lower(error.headers), error.read())


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
