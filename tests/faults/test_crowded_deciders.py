"""64 processes ask decision points for one budget: it is spent to the end, and never above."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.faults.decided import Deciders, check_whole, statuses
from tests.faults.requests import STEP, policy
from tests.ledger.places import opened
from tests.ledger.postgres_servers import PostgresServer

from dpolicy.pdp.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint

PROCESSES, TRIES, FITTING = 64, 4, 100


@pytest.fixture
def deciders() -> Iterator[Deciders]:
    """A process that forks deciders on demand."""
    made = Deciders()
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """An empty ledger that many processes can open."""
    if request.param == "sqlite":
        return (str(tmp_path / "ledger.db"),)
    server: PostgresServer = request.getfixturevalue("postgres")
    return (server.url, f"s{uuid4().hex}")


def answers(
    deciders: Deciders, task: str, where: tuple[str, ...], *, fitting: int, tries: int
) -> list[tuple[str, str]]:
    """What a crowd was told: releases with `allowed`, `denied`, or one of them `again`."""
    point = DecisionPoint(opened(*where))
    point.apply(policy(fitting * STEP))
    point.close()
    deciders.start(PROCESSES, task, where, tries=tries)
    said = [line.decode().split(" ", 1) for line in deciders.said()]
    assert deciders.codes == [0] * PROCESSES
    return [(release, status) for release, status in said]


def test_a_crowd_is_allowed_what_fits_and_no_more(
    deciders: Deciders, where: tuple[str, ...]
) -> None:
    told = answers(deciders, "submit", where, fitting=FITTING, tries=TRIES)
    store = opened(*where)
    point = DecisionPoint(store)
    found = statuses(point)
    check_whole(store, point)
    store.close()
    assert len(told) == 2 * PROCESSES * TRIES
    assert all(found[release] == status.removesuffix(" again") for release, status in told)
    firsts = [release for release, status in told if not status.endswith("again")]
    assert sorted(firsts) == sorted(found), "every release is decided once"
    assert len(firsts) == PROCESSES * TRIES + TRIES
    assert Counter(found.values())["allowed"] == FITTING


def test_the_canary_overspends(deciders: Deciders, where: tuple[str, ...]) -> None:
    told = answers(deciders, "submit-unlocked", where, fitting=20, tries=1)
    store = opened(*where)
    point = DecisionPoint(store)
    allowed = Counter(statuses(point).values())["allowed"]
    audit = audit_ledger(store)
    store.close()
    print(f"{PROCESSES} processes, budget for 20: {allowed} allowed")
    assert allowed == Counter(status for _, status in told)["allowed"] > 20
    assert any("allowed, and should not have been" in f.problem for f in audit.findings)
