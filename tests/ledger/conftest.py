"""PostgreSQL server of the store tests; one for each process of the test run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.ledger.postgres_servers import PostgresServer, running


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server."""
    with running() as server:
        yield server
