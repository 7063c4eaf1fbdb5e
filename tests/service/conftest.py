"""Servers that tests share; the tests of a module use different ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ledger.postgres_servers import PostgresServer, running
from tests.service.servers import Server, access, activate_policy, serving


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with an access file, on a SQLite ledger."""
    folder: Path = tmp_path_factory.mktemp("service")
    (folder / "access.yaml").write_text(access())
    activate_policy(str(folder / "ledger.db"))
    with serving(
        str(folder / "ledger.db"), "--access", str(folder / "access.yaml")
    ) as running_server:
        yield running_server
