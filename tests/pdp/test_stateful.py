"""Policy changes, releases, reservations, restarts and imports, in any order, on every store."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.ledger.postgres_servers import PostgresServer, running
from tests.pdp.state_machine import Agreement

from dpolicy.balances.balances import Balances, Charge
from dpolicy.decisions.decide import Verdict, decide
from dpolicy.errors import DPolicyError
from dpolicy.ledger.chain import Record
from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.ledger.stores.postgres import PostgresStore
from dpolicy.ledger.stores.sqlite import SqliteStore
from dpolicy.pdp import commands, relabelling, request_evaluation
from dpolicy.pdp.journal import journal
from dpolicy.pdp.state import ledger_state
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.release_archive import DENIED, EXPIRED, RESERVED, SPENDING_STATUSES

#: Functions that open a ledger and delete it.
Place = tuple[Callable[[], LedgerStore], Callable[[], None]]


def memory() -> Place:
    store = MemoryStore()
    return lambda: store, lambda: None


def sqlite() -> Place:
    folder = tempfile.TemporaryDirectory(prefix="dpolicy-")
    return lambda: SqliteStore(Path(folder.name) / "ledger.db"), folder.cleanup


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    with running() as server:
        yield server


def quick(examples: int, steps: int = 25) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=(Phase.generate,),  # a failure shows its steps; to shorten them takes minutes
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(autouse=True)
def snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every restart begin from a snapshot."""
    monkeypatch.setattr(journal, "MIN_RECORDS_FOR_SNAPSHOT", 1)


def run(place: Callable[[], Place], how: settings) -> None:
    """Run the state machine on ledgers of one kind."""
    machine = type("Machine", (Agreement,), {"place": staticmethod(place)})
    run_state_machine_as_test(machine, settings=how)


def test_in_memory() -> None:
    run(memory, quick(30))


def test_sqlite() -> None:
    run(sqlite, quick(8))


def test_postgres(postgres: PostgresServer) -> None:
    def place() -> Place:
        schema = f"s{uuid4().hex}"
        return lambda: PostgresStore(postgres.url, schema=schema), lambda: None

    run(place, quick(6))


# Canaries: each is an error that the state machine must detect.


def reservations_are_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger_state, "SPENDING_STATUSES", SPENDING_STATUSES - {RESERVED})


def expired_is_refunded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger_state, "SPENDING_STATUSES", SPENDING_STATUSES - {EXPIRED})


def denied_is_charged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger_state, "SPENDING_STATUSES", SPENDING_STATUSES | {DENIED})


def anything_may_be_voided(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        commands, "require_open_reservation", lambda state, release, _: state.entries[release]
    )


def a_replay_is_charged_again(patch: pytest.MonkeyPatch) -> None:
    real = commands.decide_release

    def twice(log: Any, release: Any, by: str, **more: Any) -> Any:
        if release.id in log.state.entries:
            log.state._change_count(release.id, log.state.entries[release.id].charge_group, 1)
        return real(log, release, by, **more)

    patch.setattr(commands, "decide_release", twice)


def each_release_adds_up(patch: pytest.MonkeyPatch) -> None:
    def wrong(*arguments: Any) -> Verdict:
        verdict = decide(*arguments)
        checks = tuple(
            replace(check, spent=check.cost) if check.section.compiled.rules.each_release else check
            for check in verdict.checks
        )
        return replace(verdict, checks=checks)

    patch.setattr(request_evaluation, "decide", wrong)


def a_new_policy_forgets(patch: pytest.MonkeyPatch) -> None:
    real = LedgerState._change_policy

    def forget(self: LedgerState, record: Record) -> None:
        real(self, record)
        self._changed_groups = set()

    patch.setattr(LedgerState, "_change_policy", forget)


def a_part_of_a_release_is_charged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(request_evaluation, "decide", lambda p, b, m, *rest: decide(p, b, m[:1], *rest))


def a_void_gives_back_too_much(patch: pytest.MonkeyPatch) -> None:
    def twice(self: Balances, charge: Charge, times: int) -> bool:
        self.finite[charge.rule_numbers] -= np.minimum(
            charge.rows, self.finite[charge.rule_numbers]
        )
        self.infinite[charge.rule_numbers] = 0
        return True

    patch.setattr(Balances, "subtract", twice)


def one_person_may_lower_a_charge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relabelling, "lowers_charge", lambda *_: False)


CANARIES = (
    reservations_are_free,
    expired_is_refunded,
    denied_is_charged,
    anything_may_be_voided,
    a_replay_is_charged_again,
    each_release_adds_up,
    a_new_policy_forgets,
    a_part_of_a_release_is_charged,
    a_void_gives_back_too_much,
    one_person_may_lower_a_charge,
)


@pytest.mark.parametrize("mistake", CANARIES, ids=lambda mistake: mistake.__name__)
def test_the_machine_detects(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(Exception) as raised:
        run(memory, quick(300))
    assert isinstance(raised.value, AssertionError | DPolicyError), raised.value
