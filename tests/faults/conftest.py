"""Fixtures of the fault tests: a PostgreSQL server, fork servers, and a folder in memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.fork_server import ForkServer
from tests.ledger.postgres_servers import PostgresServer, running
from tests.ledger.store_access import Address, new_address


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for each process of the test run."""
    with running() as server:
        yield server


@pytest.fixture
def writers() -> Iterator[ForkServer]:
    """A fork server whose children write to a store."""
    server = ForkServer("tests.faults.writer_tasks")
    yield server
    server.close()


@pytest.fixture
def deciders() -> Iterator[ForkServer]:
    """A fork server whose children use a decision point."""
    server = ForkServer("tests.faults.decision_tasks")
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """The address of a new ledger that many processes can open."""
    if request.param == "sqlite":
        return new_address(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    return new_address(server.url)


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder where a sync is fast: tests open thousands of states, and none has to survive."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else tmp_path))
    yield folder
    shutil.rmtree(folder)
