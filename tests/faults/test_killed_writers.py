"""SIGKILL at any moment: every confirmed record is stored exactly once, in an intact chain."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.faults.fork_server import ForkServer
from tests.faults.kill_loop import Confirmed, KillLoop, kill_once
from tests.ledger.postgres_servers import PostgresServer, running
from tests.ledger.records import seeded_random, verify_chain
from tests.ledger.store_access import Address, new_address, open_at

#: Cycles of each half; the halves run in parallel.
SQLITE_CYCLES, POSTGRES_CYCLES, SERVER_CYCLES = 250, 50, 6
CYCLES_PER_LEDGER = 25


def count_lost(confirmed: Confirmed, address: Address) -> int:
    """Return how many confirmed records are missing; no record is stored twice, no commit in part.

    A name is `PROCESS:COMMIT:PART`; see `writer_tasks`.
    """
    store = open_at(*address)
    stored = verify_chain(store.records_after(0))
    store.close()
    names = Counter(record.payload.split(b" ")[0].decode() for record in stored)
    assert all(count == 1 for count in names.values())
    parts: dict[str, set[int]] = {}
    for name in names:
        commit, _, part = name.rpartition(":")
        parts.setdefault(commit, set()).add(int(part))
    for commit, present in parts.items():
        size = 1 + int(commit.partition(":")[2]) % 3
        assert present == set(range(size)), "a commit is stored in part"
    return len(confirmed.keys() - names.keys())


def run_kill_loop(
    writers: ForkServer, task: str, cycles: int, generator: random.Random, location: Path | str
) -> int:
    """Kill one or two writers in each cycle; return how many confirmed records were lost."""

    def new_ledger() -> Address:
        address = new_address(location)
        open_at(*address).close()
        return address

    def run_and_kill(address: Address) -> Confirmed:
        number = generator.choice([1, 1, 2])
        return dict.fromkeys(kill_once(writers, task, address, generator, number=number), "")

    check_probability = 0.5 if task == "write" else 0.0
    loop = KillLoop(new_ledger, run_and_kill, count_lost, CYCLES_PER_LEDGER, check_probability)
    return loop.run(cycles, generator)


@pytest.mark.parametrize("half", ["first", "second"])
def test_a_killed_writer_loses_nothing_in_sqlite(
    writers: ForkServer, tmp_path: Path, half: str
) -> None:
    generator = seeded_random(f"kills-sqlite-{half}")
    assert run_kill_loop(writers, "write", SQLITE_CYCLES, generator, tmp_path) == 0


@pytest.mark.parametrize("half", ["first", "second"])
def test_a_killed_writer_loses_nothing_in_postgres(
    writers: ForkServer, postgres: PostgresServer, half: str
) -> None:
    generator = seeded_random(f"kills-postgres-{half}")
    assert run_kill_loop(writers, "write", POSTGRES_CYCLES, generator, postgres.url) == 0


def test_the_canary_is_caught_in_sqlite(writers: ForkServer, tmp_path: Path) -> None:
    generator = seeded_random("kills-sqlite-canary")
    assert any(run_kill_loop(writers, "write-early", 25, generator, tmp_path) for _ in range(20))


def test_the_canary_is_caught_in_postgres(writers: ForkServer, postgres: PostgresServer) -> None:
    generator = seeded_random("kills-postgres-canary")
    url = postgres.url
    assert any(run_kill_loop(writers, "write-early", 25, generator, url) for _ in range(20))


def test_a_killed_server_loses_nothing(writers: ForkServer) -> None:
    generator = seeded_random("kills-server")
    confirmed: Confirmed = {}
    with running() as server:
        address = (server.url, "killed")
        for cycle in range(SERVER_CYCLES):
            writers.start(3, "write", address)
            output = (line.decode() for line in writers.output())
            confirmed |= {next(output): "" for _ in range(generator.randrange(1, 40))}
            server.kill(signal.SIGKILL if cycle % 2 else signal.SIGQUIT)
            # Each writer exits with an error when it notices that the server is gone.
            confirmed |= dict.fromkeys(output, "")
            assert writers.exit_codes == [1, 1, 1]
            server.start()
            assert count_lost(confirmed, address) == 0
    print(f"{SERVER_CYCLES} kills of the server, {len(confirmed)} confirmed, 0 lost")
