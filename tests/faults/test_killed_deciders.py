"""Kill −9 of processes that decide: what was acknowledged stands, is charged once, and replays."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from uuid import uuid4

import pytest
from tests.faults.decided import Deciders, check_retry, check_whole, lost, statuses, sums, told
from tests.faults.nursery import kill
from tests.faults.requests import STORIES, number_of, policy, step, story
from tests.ledger.places import opened
from tests.ledger.postgres_servers import PostgresServer
from tests.ledger.records import seeded

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audit import records_with_events
from dpolicy.pdp.decision_point import DecisionPoint

#: Cycles of each test. What a killed process has written is there whether it was synced or not
#: (`test_power_cuts` is about syncing), so most are run where syncing costs nothing.
DISK_CYCLES, MEMORY_CYCLES, POSTGRES_CYCLES = 100, 200, 50

#: A ledger is used for this many cycles, then another is begun.
CYCLES_A_LEDGER = 10

Place = Path | str


@pytest.fixture
def deciders() -> Iterator[Deciders]:
    """A process that forks deciders on demand."""
    made = Deciders()
    yield made
    made.close()


def killed(
    deciders: Deciders, task: str, where: tuple[str, ...], chance: random.Random
) -> dict[str, str]:
    """The last status of each release that deciders acknowledge before they are killed.

    Half of the time that is just after an answer, which a store that lies likes least.
    """
    processes, threads = chance.choice([(1, 1), (1, 1), (1, 3), (2, 2)])
    children = deciders.start(processes, task, where, cap=threads)
    said = deciders.said()
    heard = list(islice(said, chance.choice([0, chance.randrange(1, 12)])))
    time.sleep(chance.choice([0.0, chance.uniform(0, 0.03)]))
    kill(children)
    heard += said
    assert set(deciders.codes) == {-signal.SIGKILL}
    return dict(line.decode().split() for line in heard)


def losses(confirmed: dict[str, str], where: tuple[str, ...], chance: random.Random) -> int:
    """How many acknowledged releases are lost; all else must be whole, also after retries."""
    store = opened(*where)
    point = DecisionPoint(store)
    missing = lost(confirmed, statuses(point))
    present = sorted(confirmed.keys() - set(missing))
    for some in (present, unheard(confirmed)):
        for release in chance.sample(some, min(len(some), 4)):
            confirmed[release] = check_retry(point, release)
    check_whole(store, point)
    store.close()
    return len(missing)


def unheard(confirmed: dict[str, str]) -> list[str]:
    """What each thread was perhaps asking for when it was killed."""
    last: dict[str, int] = {}
    for release in confirmed:
        thread = release.rpartition(".")[0]
        last[thread] = max(last.get(thread, 0), number_of(release))
    return [f"{thread}.{number + 1}" for thread, number in last.items()]


def kill_loop(
    deciders: Deciders, task: str, cycles: int, chance: random.Random, place: Place
) -> int:
    """How many acknowledged releases were lost."""
    missing = total = 0
    for _ in range(cycles // CYCLES_A_LEDGER):
        where = started(place)
        confirmed: dict[str, str] = {}
        for _ in range(CYCLES_A_LEDGER):
            heard = killed(deciders, task, where, chance)
            confirmed |= heard
            total += len(heard)
            # Now and then the next decider finds what the last one left, and not this check.
            if chance.random() < 0.2 and task == "decide":
                assert losses(confirmed, where, chance) == 0
        missing += losses(confirmed, where, chance)
    print(f"{task}: {cycles} cycles, {total} acknowledged, {missing} lost")
    assert total
    return missing


def started(place: Place) -> tuple[str, ...]:
    """A new ledger with a policy."""
    new = uuid4().hex
    where = (str(place / new),) if isinstance(place, Path) else (place, f"s{new}")
    point = DecisionPoint(opened(*where))
    point.apply(policy())
    point.close()
    return where


def test_a_killed_decider_loses_nothing_on_disk(deciders: Deciders, tmp_path: Path) -> None:
    chance = seeded("killed-deciders-disk")
    assert kill_loop(deciders, "decide", DISK_CYCLES, chance, tmp_path) == 0


@pytest.mark.parametrize("half", ["first", "second"])
def test_a_killed_decider_loses_nothing_in_memory(
    deciders: Deciders, memory_folder: Path, half: str
) -> None:
    chance = seeded(f"killed-deciders-memory-{half}")
    assert kill_loop(deciders, "decide", MEMORY_CYCLES, chance, memory_folder) == 0


@pytest.mark.parametrize("half", ["first", "second"])
def test_a_killed_decider_loses_nothing_in_postgres(
    deciders: Deciders, postgres: PostgresServer, half: str
) -> None:
    chance = seeded(f"killed-deciders-postgres-{half}")
    assert kill_loop(deciders, "decide", POSTGRES_CYCLES, chance, postgres.url) == 0


def test_an_early_answer_is_caught_in_sqlite(deciders: Deciders, tmp_path: Path) -> None:
    chance = seeded("killed-deciders-sqlite-canary")
    assert any(kill_loop(deciders, "decide-late", 10, chance, tmp_path) for _ in range(20))


def test_an_early_answer_is_caught_in_postgres(
    deciders: Deciders, postgres: PostgresServer
) -> None:
    chance = seeded("killed-deciders-postgres-canary")
    assert any(kill_loop(deciders, "decide-late", 10, chance, postgres.url) for _ in range(20))


def test_a_wrong_status_is_caught() -> None:
    point = DecisionPoint(MemoryStore())
    point.apply(policy())
    confirmed = {}
    for release in (f"1.0.{number}" for number in range(len(STORIES))):
        for status in story(release):
            step(point, release, status)
            confirmed[release] = status
    found = statuses(point)
    assert lost(confirmed, found) == []
    assert lost({"1.0.6": "allowed"}, found) == ["1.0.6"]
    for release in confirmed:
        one = {release: confirmed[release]}
        first = story(release)[0]
        assert lost({release: first}, found) == [], "a step that was taken and not heard of"
        assert lost(one, {release: "expired"}) == [release]
        assert lost(one, {release: first}) == [release][: len(story(release)) - 1]


def test_a_wrong_sum_is_caught() -> None:
    store = MemoryStore()
    point = DecisionPoint(store)
    point.apply(policy())
    unchanged = set()
    for release in (f"1.0.{number}" for number in range(len(STORIES))):
        for status in story(release):
            before = told(point.budgets())
            step(point, release, status)
            if before == sums(event for _, event in records_with_events(store)):
                unchanged.add((release, status))
    check_whole(store, point)
    assert unchanged == {("1.0.1", "committed"), ("1.0.3", "denied")}
