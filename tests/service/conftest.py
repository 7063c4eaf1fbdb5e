"""Servers that many tests share: nothing that one test does disturbs another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ledger.postgres_servers import PostgresServer, running
from tests.service.servers import Server, access, policy_in_force, serving


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL."""
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with people, on a file."""
    folder: Path = tmp_path_factory.mktemp("service")
    (folder / "access.yaml").write_text(access())
    policy_in_force(str(folder / "ledger.db"))
    with serving(str(folder / "ledger.db"), "--access", str(folder / "access.yaml")) as found:
        yield found
