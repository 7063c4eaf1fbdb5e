"""64 processes on one budget: never more than the cap, and all of it in the end."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from tests.faults.nursery import Nursery
from tests.ledger.places import opened
from tests.ledger.postgres_servers import PostgresServer
from tests.ledger.records import verified

PROCESSES, TRIES, CAP = 64, 20, 1000


def spent(nursery: Nursery, task: str, where: tuple[str, ...], *, cap: int, tries: int) -> int:
    """How many records many processes write that should write `cap` together."""
    opened(*where).close()
    nursery.start(PROCESSES, task, where, cap=cap, tries=tries)
    assert list(nursery.said()) == []
    assert nursery.codes == [0] * PROCESSES
    store = opened(*where)
    number = len(verified(store.records_after(0)))
    store.close()
    print(f"{task}: {PROCESSES} processes, cap {cap}: {number} records")
    return number


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """An empty ledger that many processes can open."""
    if request.param == "sqlite":
        return (str(tmp_path / "ledger.db"),)
    server: PostgresServer = request.getfixturevalue("postgres")
    return (server.url, f"s{uuid4().hex}")


def test_a_crowd_spends_the_budget_and_no_more(nursery: Nursery, where: tuple[str, ...]) -> None:
    assert spent(nursery, "spend", where, cap=CAP, tries=TRIES) == CAP


def test_the_canary_overspends(nursery: Nursery, where: tuple[str, ...]) -> None:
    assert spent(nursery, "spend-early", where, cap=100, tries=5) > 100
