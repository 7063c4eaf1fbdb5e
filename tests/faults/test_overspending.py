"""64 processes on one budget: never more than the cap, and all of it in the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from tests.ledger.places import opened
from tests.ledger.postgres_servers import PostgresServer
from tests.ledger.records import verified

ROOT = Path(__file__).parents[2]
PROCESSES, TRIES, CAP = 64, 20, 1000


def spent(task: str, *where: str, cap: int = CAP, tries: int = TRIES) -> int:
    """How many records many processes write that should write `cap` together."""
    opened(*where).close()
    crowd = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.faults.children", task, f"{cap},{tries}", *where],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(PROCESSES)
    ]
    for process in crowd:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
    for process in crowd:
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.flush()
    for process in crowd:
        process.communicate()
    assert [process.returncode for process in crowd] == [0] * PROCESSES
    store = opened(*where)
    number = len(verified(store.after(0)))
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


def test_a_crowd_spends_the_budget_and_no_more(where: tuple[str, ...]) -> None:
    assert spent("spend", *where) == CAP


def test_the_canary_overspends(where: tuple[str, ...]) -> None:
    assert spent("spend-early", *where, cap=100, tries=5) > 100
