"""64 processes use decision points on one budget: they spend all of it, and never more."""

from __future__ import annotations

from collections import Counter

from tests.faults.fork_server import ForkServer
from tests.faults.ledger_checks import check_ledger, statuses
from tests.faults.lifecycles import COST_STEP, policy
from tests.ledger.store_access import Address, open_at

from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint

#: FITTING releases of cost `COST_STEP` fit into the budget.
PROCESSES, TRIES, FITTING = 64, 4, 100


def submit_concurrently(
    deciders: ForkServer, task: str, address: Address, *, fitting: int, tries: int
) -> list[tuple[str, str]]:
    """Return the decisions of all processes as pairs: release, and `allowed` or `denied`.

    The status of a replayed decision ends with ` again`.
    """
    point = DecisionPoint(open_at(*address))
    point.apply(policy(fitting * COST_STEP))
    point.close()
    deciders.start(PROCESSES, task, address, tries=tries)
    lines = [line.decode().split(" ", 1) for line in deciders.output()]
    assert deciders.exit_codes == [0] * PROCESSES
    return [(release, status) for release, status in lines]


def test_concurrent_processes_spend_exactly_the_budget(
    deciders: ForkServer, address: Address
) -> None:
    decisions = submit_concurrently(deciders, "submit", address, fitting=FITTING, tries=TRIES)
    store = open_at(*address)
    point = DecisionPoint(store)
    stored = statuses(point)
    check_ledger(store, point)
    store.close()
    assert len(decisions) == 2 * PROCESSES * TRIES
    assert all(stored[release] == status.removesuffix(" again") for release, status in decisions)
    firsts = [release for release, status in decisions if not status.endswith("again")]
    assert sorted(firsts) == sorted(stored), "every release is decided once"
    assert len(firsts) == PROCESSES * TRIES + TRIES
    assert Counter(stored.values())["allowed"] == FITTING


def test_the_canary_without_a_lock_overspends(deciders: ForkServer, address: Address) -> None:
    decisions = submit_concurrently(deciders, "submit-unlocked", address, fitting=20, tries=1)
    store = open_at(*address)
    point = DecisionPoint(store)
    allowed = Counter(statuses(point).values())["allowed"]
    audit = audit_ledger(store)
    store.close()
    print(f"{PROCESSES} processes, budget for 20: {allowed} allowed")
    assert allowed == Counter(status for _, status in decisions)["allowed"] > 20
    assert any("allowed, and should not have been" in f.problem for f in audit.findings)
