"""The gate: no run without a reservation, and a run that began stays charged."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from tests.gated.pages import run_example
from tests.pdp.builders import GLOBAL, ZIP, mechanism, policy, pure, started

from dpolicy.errors import Denied, InvalidValue, OperationRejected, ReleaseRejected
from dpolicy.integrations.float_rounding import round_down, round_loss_up, round_up
from dpolicy.integrations.gate import Gate, ReservationService
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint

ROOT = Path(__file__).parents[2]


def status(point: DecisionPoint, release: str) -> str:
    return point.entries[release].status


def has_remaining(point: DecisionPoint, epsilon: str) -> bool:
    """Return whether a release of this ε would be allowed; it is not charged."""
    return point.check(pure("another", epsilon)).allowed


def test_a_run_is_reserved_then_committed() -> None:
    point: ReservationService = started()  # a decision point satisfies the protocol
    assert isinstance(point, DecisionPoint)
    with Gate(point, by="ada").reserve("run", mechanism(epsilon=2)) as run:
        assert status(point, run.release) == "reserved"
        assert not has_remaining(point, "0.1")
    assert status(point, run.release) == "committed"
    assert not has_remaining(point, "0.1")


def test_a_denial_is_raised_before_the_run() -> None:
    point, ran = started(), []
    with pytest.raises(Denied) as denied, Gate(point).reserve("run", mechanism(epsilon=3)):
        ran.append("no")
    assert not ran
    assert denied.value.decision.exceeded_rules == ("global",)
    assert denied.value.decision.counter_offers
    assert "exceeded: global" in str(denied.value)


def test_a_release_outside_of_the_vocabulary_does_not_run() -> None:
    with pytest.raises(ReleaseRejected):
        Gate(started()).reserve("run", mechanism(("shoe-size",), epsilon=1))


def test_every_run_is_charged() -> None:
    point = started()
    gate = Gate(point)
    names = set()
    for _ in range(2):
        with gate.reserve("run", mechanism(epsilon=1)) as run:
            names.add(run.release)
    assert len(names) == 2
    with pytest.raises(Denied):
        gate.reserve("run", mechanism(epsilon=1))


def test_a_chosen_id_runs_once() -> None:
    gate = Gate(started())
    with gate.reserve("run", mechanism(epsilon=1), release="monday"):
        pass
    with pytest.raises(OperationRejected, match="was already run; a re-run is another release"):
        gate.reserve("run", mechanism(epsilon=1), release="monday")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_stays_charged(error: type[BaseException]) -> None:
    point = started()
    with pytest.raises(error), Gate(point).reserve("run", mechanism(epsilon=2)) as run:
        run.report_used(mechanism(epsilon=1))  # ignored: the exception may depend on the data
        raise error
    assert status(point, run.release) == "committed"
    assert not has_remaining(point, "0.1")


def test_a_run_may_use_less_than_reserved() -> None:
    point = started()
    with Gate(point).reserve("run", mechanism(epsilon=2)) as run:
        run.report_used(mechanism(epsilon=1))
    assert has_remaining(point, "1")
    assert not has_remaining(point, "1.1")


def test_a_run_may_not_use_more_than_reserved() -> None:
    point = started()
    with (
        pytest.raises(OperationRejected, match="costs more"),
        Gate(point).reserve("run", mechanism(epsilon=1)) as run,
    ):
        run.report_used(mechanism(epsilon=2))
    assert status(point, run.release) == "reserved"  # the reservation stays charged
    assert not has_remaining(point, "1.1")


def test_a_run_that_read_nothing_is_voided() -> None:
    point = started()
    with (
        pytest.raises(FileNotFoundError),
        Gate(point).reserve("run", mechanism(epsilon=2)) as run,
    ):
        run.void_unread("the file does not exist")
        raise FileNotFoundError
    assert status(point, run.release) == "voided"
    assert has_remaining(point, "2")
    for call in (run.commit, lambda: run.void_unread("again"), lambda: run.report_used()):
        with pytest.raises(OperationRejected, match="has ended"):
            call()


class Clock:
    """Clock that only the test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 10, 28, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def point_with_clock(clock: Clock) -> DecisionPoint:
    point = DecisionPoint(MemoryStore(), clock)
    point.apply(policy(GLOBAL))
    return point


def test_a_run_may_take_longer_than_its_reservation() -> None:
    clock = Clock()
    point = point_with_clock(clock)
    with Gate(point).reserve("run", mechanism(epsilon=2)) as run:
        clock.now += timedelta(days=3)
    assert status(point, run.release) == "expired"
    assert not has_remaining(point, "0.1")


def test_an_expired_reservation_returns_nothing() -> None:
    clock = Clock()
    point = point_with_clock(clock)
    with (
        pytest.raises(OperationRejected, match="expired"),
        Gate(point).reserve("run", mechanism(epsilon=2)) as run,
    ):
        run.report_used(mechanism(epsilon=1))
        clock.now += timedelta(days=3)
    assert not has_remaining(point, "0.1")


def test_a_run_that_is_voided_by_others_is_an_error() -> None:
    point = started()
    with (
        pytest.raises(OperationRejected, match="voided"),
        Gate(point).reserve("run", mechanism(epsilon=2)) as run,
    ):
        point.void(run.release, "a mistake: it is running")


def test_a_gate_adds_its_fields_to_every_mechanism() -> None:
    point = started(GLOBAL, ZIP % "{epsilon: 1}")
    gate = Gate(
        point,
        by="ada",
        labels={"team": "ads", "purpose": ["research"]},
        attributes=["zip"],
        unit="user-day",
        relation="add-remove",
        additive=True,
        where={"country": ["CH"]},
        time={"from": "2026-10-01", "to": "2026-10-02"},
    )
    counts = gate.mechanism_fields(
        {"kind": "laplace", "scale": 4},
        also={"user": {"sensitivity": Fraction(3, 2)}},
        name="counts",
    )
    assert counts["name"] == "counts" and counts["labels"] == gate.labels
    with gate.reserve("counts", counts):
        pass
    spent = {b.rule.name: b.spent for b in point.budgets({"country": "CH", "time": "2026-10-01"})}
    assert spent["global"]["epsilon"] == pytest.approx(
        0.375
    )  # sensitivity 3/2 for the user, not 2 days
    assert spent["zips"]["epsilon"] == pytest.approx(0.375)


def test_a_gate_states_its_unit_and_relation() -> None:
    """Without them, the record would follow the defaults of the policy."""
    point = started(GLOBAL, head=PAGE)
    laplace = {"kind": "laplace", "scale": 4}
    with pytest.raises(OperationRejected, match="policy has `user`, `user-day`; help: pass `unit`"):
        Gate(point).mechanism_fields(laplace)
    daily = Gate(point, unit="user-day").mechanism_fields(laplace)
    assert (daily["unit"], daily["relation"]) == ("user-day", "add-remove")
    one_unit = PAGE.replace(", user-day: {period: day, relation: add-remove}", "")
    single = Gate(started(GLOBAL, head=one_unit)).mechanism_fields(laplace)
    assert (single["unit"], single["relation"]) == ("user", "add-remove")


PAGE = """
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {relation: add-remove}, user-day: {period: day, relation: add-remove}}
schema: {attributes: {page-views: {risk: low}}}
"""


def test_the_example_of_the_page() -> None:
    point = started(GLOBAL.replace("epsilon: 2", "epsilon: 4"), head=PAGE)
    variables = run_example("gate", point=point)
    assert status(point, variables["run"].release) == "committed"
    (balance,) = point.budgets()
    assert balance.spent["epsilon"] == pytest.approx(3.5)


def kill_run(mode: str, ledger: Path) -> DecisionPoint:
    """Kill a process while it reads data, and return a decision point on its ledger."""
    command = [sys.executable, "-m", "tests.integrations.killed_runs", mode, str(ledger)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "reading\n"
        child.kill()
    return DecisionPoint(ledger)


def test_a_killed_run_stays_charged(tmp_path: Path) -> None:
    point = kill_run("gated", tmp_path / "ledger.db")
    assert status(point, "run") == "reserved"
    assert not has_remaining(point, "0.1")
    with pytest.raises(OperationRejected, match="was already run; a re-run is another release"):
        Gate(point).reserve("run", mechanism(epsilon=2), release="run")


def test_the_canary_loses_the_charge(tmp_path: Path) -> None:
    assert has_remaining(kill_run("trusting", tmp_path / "ledger.db"), "2")


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-20, 12345.678901234567, 0.30000000000000004])
def test_rounding_never_lowers_a_charge(value: float) -> None:
    exact = Fraction(value)
    assert exact <= round_up(value) <= exact * (1 + Fraction(1, 10**14))
    assert exact * (1 - Fraction(1, 10**14)) <= round_down(value) <= exact
    assert round_loss_up(value) >= exact


def test_invalid_losses_are_refused() -> None:
    assert round_loss_up(0.0) == Fraction(1, 10**9)
    for value in (float("nan"), float("inf"), -1.0):
        with pytest.raises(InvalidValue):
            round_loss_up(value)
