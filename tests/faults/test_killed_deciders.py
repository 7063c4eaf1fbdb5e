"""SIGKILL of deciding processes: an acknowledged release is kept, charged once, and replayed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.faults.fork_server import ForkServer
from tests.faults.kill_loop import Confirmed, KillLoop, kill_once
from tests.faults.ledger_checks import (
    check_ledger,
    check_retry,
    lost_releases,
    spent_by_events,
    spent_by_status,
    statuses,
)
from tests.faults.lifecycles import LIFECYCLES, advance, lifecycle, policy, request_number
from tests.ledger.postgres_servers import PostgresServer
from tests.ledger.records import seeded_random
from tests.ledger.store_access import Address, new_address, open_at

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import records_with_events
from dpolicy.pdp.decision_point import DecisionPoint

#: Cycles of each test. The data that a killed process has written is in the file whether it was
#: synced or not (`test_power_cuts` tests syncs), so most cycles run where a sync is fast.
DISK_CYCLES, MEMORY_CYCLES, POSTGRES_CYCLES = 100, 200, 50
CYCLES_PER_LEDGER = 10


def count_lost(confirmed: Confirmed, address: Address, generator: random.Random) -> int:
    """Return how many acknowledged releases are lost; check the ledger and retries of others."""
    store = open_at(*address)
    point = DecisionPoint(store)
    lost = lost_releases(confirmed, statuses(point))
    present = sorted(confirmed.keys() - set(lost))
    for releases in (present, possibly_requested(confirmed)):
        for release in generator.sample(releases, min(len(releases), 4)):
            confirmed[release] = check_retry(point, release)
    check_ledger(store, point)
    store.close()
    return len(lost)


def possibly_requested(confirmed: Confirmed) -> list[str]:
    """Return the releases that each thread may have requested when it was killed."""
    last: dict[str, int] = {}
    for release in confirmed:
        thread = release.rpartition(".")[0]
        last[thread] = max(last.get(thread, 0), request_number(release))
    return [f"{thread}.{number + 1}" for thread, number in last.items()]


def run_kill_loop(
    deciders: ForkServer, task: str, cycles: int, generator: random.Random, location: Path | str
) -> int:
    """Kill one or two deciders in each cycle; return how many acknowledged releases were lost."""

    def new_ledger() -> Address:
        address = new_address(location)
        point = DecisionPoint(open_at(*address))
        point.apply(policy())
        point.close()
        return address

    def run_and_kill(address: Address) -> Confirmed:
        number, threads = generator.choice([(1, 1), (1, 1), (1, 3), (2, 2)])
        lines = kill_once(deciders, task, address, generator, number=number, cap=threads)
        return dict(line.split() for line in lines)

    def count(confirmed: Confirmed, address: Address) -> int:
        return count_lost(confirmed, address, generator)

    check_probability = 0.2 if task == "decide" else 0.0
    loop = KillLoop(new_ledger, run_and_kill, count, CYCLES_PER_LEDGER, check_probability)
    return loop.run(cycles, generator)


def test_a_killed_decider_loses_nothing_on_disk(deciders: ForkServer, tmp_path: Path) -> None:
    generator = seeded_random("killed-deciders-disk")
    assert run_kill_loop(deciders, "decide", DISK_CYCLES, generator, tmp_path) == 0


@pytest.mark.parametrize("half", ["first", "second"])
def test_a_killed_decider_loses_nothing_in_memory(
    deciders: ForkServer, memory_folder: Path, half: str
) -> None:
    generator = seeded_random(f"killed-deciders-memory-{half}")
    assert run_kill_loop(deciders, "decide", MEMORY_CYCLES, generator, memory_folder) == 0


@pytest.mark.parametrize("half", ["first", "second"])
def test_a_killed_decider_loses_nothing_in_postgres(
    deciders: ForkServer, postgres: PostgresServer, half: str
) -> None:
    generator = seeded_random(f"killed-deciders-postgres-{half}")
    assert run_kill_loop(deciders, "decide", POSTGRES_CYCLES, generator, postgres.url) == 0


def test_an_early_answer_is_caught_in_sqlite(deciders: ForkServer, tmp_path: Path) -> None:
    generator = seeded_random("killed-deciders-sqlite-canary")
    assert any(run_kill_loop(deciders, "decide-late", 10, generator, tmp_path) for _ in range(20))


def test_an_early_answer_is_caught_in_postgres(
    deciders: ForkServer, postgres: PostgresServer
) -> None:
    generator = seeded_random("killed-deciders-postgres-canary")
    assert any(
        run_kill_loop(deciders, "decide-late", 10, generator, postgres.url) for _ in range(20)
    )


def test_a_wrong_status_is_caught() -> None:
    point = DecisionPoint(MemoryStore())
    point.apply(policy())
    confirmed = {}
    for release in (f"1.0.{number}" for number in range(len(LIFECYCLES))):
        for status in lifecycle(release):
            advance(point, release, status)
            confirmed[release] = status
    stored = statuses(point)
    assert lost_releases(confirmed, stored) == []
    assert lost_releases({"1.0.6": "allowed"}, stored) == ["1.0.6"]
    for release in confirmed:
        last_status = {release: confirmed[release]}
        first = lifecycle(release)[0]
        assert lost_releases({release: first}, stored) == [], (
            "a committed step without an acknowledgement"
        )
        assert lost_releases(last_status, {release: "expired"}) == [release]
        assert (
            lost_releases(last_status, {release: first}) == [release][: len(lifecycle(release)) - 1]
        )


def test_a_wrong_sum_is_caught() -> None:
    store = MemoryStore()
    point = DecisionPoint(store)
    point.apply(policy())
    unchanged = set()
    for release in (f"1.0.{number}" for number in range(len(LIFECYCLES))):
        for status in lifecycle(release):
            before = spent_by_status(point.budgets())
            advance(point, release, status)
            if before == spent_by_events(event for _, event in records_with_events(store)):
                unchanged.add((release, status))
    check_ledger(store, point)
    assert unchanged == {("1.0.1", "committed"), ("1.0.3", "denied")}
