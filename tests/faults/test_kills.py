"""Kill −9 at any moment: what was confirmed is there, exactly once, in a chain that holds."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from tests.ledger.places import opened
from tests.ledger.postgres_servers import PostgresServer, running
from tests.ledger.records import seeded, verified

ROOT = Path(__file__).parents[2]

#: Cycles of each half; the halves run side by side.
SQLITE_CYCLES, POSTGRES_CYCLES, SERVER_CYCLES = 250, 50, 6

#: A ledger is used for this many cycles, then another is begun.
CYCLES_A_LEDGER = 25


@dataclass
class Found:
    """What a loop has seen."""

    confirmed: set[bytes] = field(default_factory=set)
    lost: int = 0
    left_logs: int = 0


def child(task: str, *where: str) -> subprocess.Popen[bytes]:
    """A writer that is ready to begin."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.children", task, "", *where],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout
    assert process.stdin
    assert process.stdout.readline() == b"ready\n"
    process.stdin.write(b"\n")
    process.stdin.flush()
    return process


def confirmed(process: subprocess.Popen[bytes]) -> set[bytes]:
    """What a process that has ended had confirmed; a line that was cut was not."""
    assert process.stdout
    lines = process.stdout.read().split(b"\n")[:-1]
    process.communicate()
    return set(lines)


def check(found: Found, where: tuple[str, ...]) -> None:
    """Compare the ledger with what was confirmed."""
    store = opened(*where)
    names = Counter(record.payload.split(b" ")[0] for record in verified(store.after(0)))
    store.close()
    assert all(times == 1 for times in names.values())
    found.lost += len(found.confirmed - set(names))
    parts: dict[bytes, set[int]] = {}
    for name in names:
        commit, _, part = name.rpartition(b":")
        parts.setdefault(commit, set()).add(int(part))
    for commit, present in parts.items():
        whole = 1 + int(commit.partition(b":")[2]) % 3
        assert present == set(range(whole)), "a commit is there in part"


def kill_loop(task: str, cycles: int, chance: random.Random, place: tuple[str, ...] | Path) -> int:
    """How many confirmed records were lost."""
    lost = total = 0
    found = Found()
    where: tuple[str, ...] = ()
    for cycle in range(cycles):
        if cycle % CYCLES_A_LEDGER == 0:
            found = Found()
            new = uuid4().hex
            where = (str(place / new),) if isinstance(place, Path) else (place[0], f"s{new}")
        process = child(task, *where)
        time.sleep(chance.uniform(0, 0.04))
        process.kill()
        found.confirmed |= confirmed(process)
        # Now and then the next writer finds what the last one left, and not this check.
        if chance.random() < 0.5 or cycle % CYCLES_A_LEDGER == CYCLES_A_LEDGER - 1:
            check(found, where)
        if cycle % CYCLES_A_LEDGER == CYCLES_A_LEDGER - 1 or cycle == cycles - 1:
            check(found, where)
            lost += found.lost
            total += len(found.confirmed)
    print(f"{task}: {cycles} cycles, {total} confirmed, {lost} lost")
    assert total
    return lost


@pytest.mark.parametrize("half", ["first", "second"])
def test_a_killed_writer_loses_nothing_in_sqlite(tmp_path: Path, half: str) -> None:
    assert kill_loop("write", SQLITE_CYCLES, seeded(f"kills-sqlite-{half}"), tmp_path) == 0


@pytest.mark.parametrize("half", ["first", "second"])
def test_a_killed_writer_loses_nothing_in_postgres(postgres: PostgresServer, half: str) -> None:
    chance = seeded(f"kills-postgres-{half}")
    assert kill_loop("write", POSTGRES_CYCLES, chance, (postgres.url,)) == 0


def test_the_canary_is_caught_in_sqlite(tmp_path: Path) -> None:
    chance = seeded("kills-sqlite-canary")
    assert any(kill_loop("write-early", 10, chance, tmp_path) for _ in range(20))


def test_the_canary_is_caught_in_postgres(postgres: PostgresServer) -> None:
    chance = seeded("kills-postgres-canary")
    assert any(kill_loop("write-early", 10, chance, (postgres.url,)) for _ in range(20))


def test_a_killed_server_loses_nothing() -> None:
    chance = seeded("kills-server")
    found = Found()
    with running() as server:
        where = (server.url, "killed")
        for cycle in range(SERVER_CYCLES):
            writers = [child("write", *where) for _ in range(3)]
            time.sleep(chance.uniform(0.1, 0.5))
            server.kill(signal.SIGKILL if cycle % 2 else signal.SIGQUIT)
            for writer in writers:
                # It has lost its server, which it must notice by itself: nothing else stops it.
                writer.wait()
                found.confirmed |= confirmed(writer)
            server.start()
            check(found, where)
    assert found.lost == 0
    assert found.confirmed
