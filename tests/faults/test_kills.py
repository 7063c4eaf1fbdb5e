"""Kill −9 at any moment: what was confirmed is there, exactly once, in a chain that holds."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest
from tests.faults.nursery import Nursery, kill
from tests.ledger.places import opened
from tests.ledger.postgres_servers import PostgresServer, running
from tests.ledger.records import seeded, verified

#: Cycles of each half; the halves run side by side.
SQLITE_CYCLES, POSTGRES_CYCLES, SERVER_CYCLES = 250, 50, 6

#: A ledger is used for this many cycles, then another is begun.
CYCLES_A_LEDGER = 25


def lost(confirmed: set[bytes], where: tuple[str, ...]) -> int:
    """How many confirmed records are missing; none may be there twice, no commit in part."""
    store = opened(*where)
    names = Counter(record.payload.split(b" ")[0] for record in verified(store.records_after(0)))
    store.close()
    assert all(times == 1 for times in names.values())
    parts: dict[bytes, set[int]] = {}
    for name in names:
        commit, _, part = name.rpartition(b":")
        parts.setdefault(commit, set()).add(int(part))
    for commit, present in parts.items():
        whole = 1 + int(commit.partition(b":")[2]) % 3
        assert present == set(range(whole)), "a commit is there in part"
    return len(confirmed - set(names))


def killed(
    nursery: Nursery, task: str, where: tuple[str, ...], chance: random.Random
) -> set[bytes]:
    """What one or two writers confirm before they are killed at a random time.

    Half of the time that is just after a confirmation, which a store that lies likes least.
    """
    writers = nursery.start(chance.choice([1, 1, 2]), task, where)
    said = nursery.said()
    heard = {next(said) for _ in range(chance.choice([0, chance.randrange(1, 12)]))}
    time.sleep(chance.choice([0.0, chance.uniform(0, 0.03)]))
    kill(writers)
    heard.update(said)
    assert set(nursery.codes) == {-signal.SIGKILL}
    return heard


def kill_loop(
    nursery: Nursery, task: str, cycles: int, chance: random.Random, place: tuple[str] | Path
) -> int:
    """How many confirmed records were lost."""
    missing = total = 0
    for start in range(0, cycles, CYCLES_A_LEDGER):
        new = uuid4().hex
        where = (str(place / new),) if isinstance(place, Path) else (place[0], f"s{new}")
        opened(*where).close()
        confirmed: set[bytes] = set()
        for _ in range(min(CYCLES_A_LEDGER, cycles - start)):
            confirmed |= killed(nursery, task, where, chance)
            # Now and then the next writer finds what the last one left, and not this check.
            if chance.random() < 0.5 and task == "write":
                assert not lost(confirmed, where)
        missing += lost(confirmed, where)
        total += len(confirmed)
    print(f"{task}: {cycles} cycles, {total} confirmed, {missing} lost")
    assert total
    return missing


@pytest.mark.parametrize("half", ["first", "second"])
def test_a_killed_writer_loses_nothing_in_sqlite(
    nursery: Nursery, tmp_path: Path, half: str
) -> None:
    chance = seeded(f"kills-sqlite-{half}")
    assert kill_loop(nursery, "write", SQLITE_CYCLES, chance, tmp_path) == 0


@pytest.mark.parametrize("half", ["first", "second"])
def test_a_killed_writer_loses_nothing_in_postgres(
    nursery: Nursery, postgres: PostgresServer, half: str
) -> None:
    chance = seeded(f"kills-postgres-{half}")
    assert kill_loop(nursery, "write", POSTGRES_CYCLES, chance, (postgres.url,)) == 0


def test_the_canary_is_caught_in_sqlite(nursery: Nursery, tmp_path: Path) -> None:
    chance = seeded("kills-sqlite-canary")
    assert any(kill_loop(nursery, "write-early", 25, chance, tmp_path) for _ in range(20))


def test_the_canary_is_caught_in_postgres(nursery: Nursery, postgres: PostgresServer) -> None:
    chance = seeded("kills-postgres-canary")
    place = (postgres.url,)
    assert any(kill_loop(nursery, "write-early", 25, chance, place) for _ in range(20))


def test_a_killed_server_loses_nothing(nursery: Nursery) -> None:
    chance = seeded("kills-server")
    confirmed: set[bytes] = set()
    with running() as server:
        where = (server.url, "killed")
        for cycle in range(SERVER_CYCLES):
            nursery.start(3, "write", where)
            said = nursery.said()
            confirmed.update(next(said) for _ in range(chance.randrange(1, 40)))
            server.kill(signal.SIGKILL if cycle % 2 else signal.SIGQUIT)
            # The writers must notice by themselves that their server is gone.
            confirmed.update(said)
            assert nursery.codes == [1, 1, 1]
            server.start()
            assert lost(confirmed, where) == 0
    print(f"{SERVER_CYCLES} kills of the server, {len(confirmed)} confirmed, 0 lost")
