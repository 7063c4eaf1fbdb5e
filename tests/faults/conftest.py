"""What the fault tests share: a PostgreSQL and a nursery, and a folder where syncing is free."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.nursery import Nursery
from tests.ledger.postgres_servers import PostgresServer, running


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for each process of the test run."""
    with running() as server:
        yield server


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    """A process that forks children on demand."""
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """Where syncing costs nothing: thousands of states are opened, none has to survive."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else tmp_path))
    yield folder
    shutil.rmtree(folder)
