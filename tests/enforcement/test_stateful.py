"""Policy edits, releases, reservations, restarts and imports, in any order, on every store."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.enforcement.machine import Agreement
from tests.ledger.postgres_servers import PostgresServer, running

from dpolicy.ledger.memory import MemoryStore
from dpolicy.ledger.postgres import PostgresStore
from dpolicy.ledger.sqlite import SqliteStore
from dpolicy.ledger.store import Store

#: How a ledger is opened, and how it is thrown away.
Place = tuple[Callable[[], Store], Callable[[], None]]


def memory() -> Place:
    store = MemoryStore()
    return lambda: store, lambda: None


def sqlite() -> Place:
    folder = tempfile.TemporaryDirectory(prefix="dpolicy-")
    return lambda: SqliteStore(Path(folder.name) / "ledger.db"), folder.cleanup


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A server."""
    with running() as server:
        yield server


def quick(examples: int, steps: int = 25) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def run(place: Callable[[], Place], how: settings) -> None:
    """The machine on ledgers of one kind."""
    machine = type("Machine", (Agreement,), {"place": staticmethod(place)})
    run_state_machine_as_test(machine, settings=how)  # type: ignore[no-untyped-call]


def test_in_memory() -> None:
    run(memory, quick(60))


def test_sqlite() -> None:
    run(sqlite, quick(10))


def test_postgres(postgres: PostgresServer) -> None:
    def place() -> Place:
        schema = f"s{uuid4().hex}"
        return lambda: PostgresStore(postgres.url, schema=schema), lambda: None

    run(place, quick(5))
