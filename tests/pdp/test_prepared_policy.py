"""A policy is prepared without a lock, and charges what came meanwhile under the lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pdp.builders import GLOBAL, ZIP, policy, pure, started

from dpolicy.balances.enforced_policy import enforce
from dpolicy.errors import OperationRejected, PolicyConflicts
from dpolicy.ledger.events import PolicyProposed, next_record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.policy_changes import preparation
from dpolicy.pdp.policy_changes.prepared_policy import (
    PreparedPolicy,
    copy_releases,
    prepare_policy,
)
from dpolicy.pdp.policy_changes.recorded_policy import compile_recorded_policy
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.pdp.state import charge_groups, recent_changes
from dpolicy.pdp.state.charge_groups import SpendingTotals
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.recent_changes import RecentChanges
from dpolicy.rules.compiler import CompiledPolicy

WITH_ZIP = policy(GLOBAL, ZIP % "{epsilon: 1}")
STRICT = policy(GLOBAL, ZIP % "{epsilon: 0.25}")


def start() -> DecisionPoint:
    """Return a decision point with releases of two contents and a reservation."""
    point = started()
    for number in range(3):
        point.submit(pure(f"a{number}", "0.05", "zip"))
    point.submit(pure("b", "0.1"))
    point.reserve(pure("held", "0.1", "zip"))
    return point


def act_during_preparation(
    monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], object]
) -> list[PreparedPolicy | None]:
    """Run each action after a preparation, before the command; return what is prepared.

    The actions read and write in the thread that prepares: they wait forever if it holds a lock.
    """
    left, made = list(actions), list[PreparedPolicy | None]()

    def prepare(state: LedgerState, candidate: CompiledPolicy) -> PreparedPolicy | None:
        made.append(prepare_policy(state, candidate))
        if left:
            left.pop(0)()
        return made[-1]

    monkeypatch.setattr(preparation, "prepare_policy", prepare)
    return made


def spent_in(point: DecisionPoint) -> list[Any]:
    return [(status.rule.name, status.loss, set(status.spenders)) for status in point.budgets()]


def check_balances(point: DecisionPoint) -> None:
    """Check the states of readers and writers against a fold of the records."""
    folded = DecisionPoint(MemoryStore(list(point.records())))
    assert spent_in(point) == spent_in(folded)
    body = pure("next", "0.01", "zip")
    assert point.submit(body).reasons == folded.submit(body).reasons


def change_everything(point: DecisionPoint) -> None:
    """Record what changes charges: known and new contents, a void, an import."""
    point.submit(pure("a3", "0.05", "zip"))
    point.submit(pure("c", "0.07", "zip"))
    point.void("held", "nothing was read")
    point.import_past(pure("d", "0.02"), "from the wiki")
    assert point.budgets()


def test_what_came_meanwhile_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    point = start()
    made = act_during_preparation(monkeypatch, lambda: change_everything(point))
    point.apply(WITH_ZIP)
    assert len(made) == 1
    assert made[0] is not None
    check_balances(point)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_more_changes_than_are_kept_are_charged(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(recent_changes, "MAX_CHANGES", limit)
    point = start()
    act_during_preparation(monkeypatch, lambda: change_everything(point))
    point.apply(WITH_ZIP)
    check_balances(point)


def test_a_copy_for_a_preparation_knows_no_recent_changes() -> None:
    """Totals of an older record, offered to the copy, are charged completely."""
    with start()._journal.read() as state:
        copy, expected = copy_releases(state), state.with_policy(WITH_ZIP).balances
        charged = copy.with_totals(SpendingTotals(enforce(WITH_ZIP)), sequence=1).balances
    assert expected.finite.any()
    assert (charged.finite == expected.finite).all()


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 14), st.integers(0, 5))
def test_recent_changes_are_complete_or_unknown(
    steps: list[int], sequence: int, start_at: int
) -> None:
    """Each step is the number of changes of a record; group n is changed by record n // 4."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recent_changes, "MAX_CHANGES", 5)
        changes = RecentChanges(start_at)
        made = [
            (record, 4 * record + change)
            for record, count in enumerate(steps, start_at + 1)
            for change in range(count)
        ]
        for record, group in made:
            changes.append(record, group)
        expected = {group for record, group in made if record > sequence}
        found = changes.copy().find_after(sequence)
    if found is None:
        assert sequence < start_at or len(made) >= 5
    else:
        assert found == expected


def test_missing_what_came_meanwhile_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary: `check_balances` fails for totals that miss the newer records."""
    point = start()
    act_during_preparation(monkeypatch, lambda: change_everything(point))
    with monkeypatch.context() as patch:
        patch.setattr(RecentChanges, "find_after", lambda self, sequence: set())
        point.apply(WITH_ZIP)
    with pytest.raises(AssertionError):
        check_balances(point)


def test_a_conflict_that_came_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    point = start()
    made = act_during_preparation(
        monkeypatch, lambda: point.submit(pure("more", "0.2", "zip")) and None
    )
    with pytest.raises(PolicyConflicts) as caught:
        point.apply(STRICT)
    assert len(made) == 2  # the second one has the conflict
    (conflict,) = caught.value.conflicts
    assert isinstance(conflict, RuleStatus)
    assert conflict.name == "zips"
    assert "more" in conflict.spenders
    assert point.policy is not None
    assert point.policy.digest == policy(GLOBAL).digest
    check_balances(point)


def test_a_conflict_that_went_meanwhile_need_not_be_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = start()
    point.reserve(pure("much", "0.5", "zip"))
    act_during_preparation(monkeypatch, lambda: point.void("much", "nothing was read"))
    point.apply(STRICT)
    check_balances(point)


def test_another_policy_meanwhile_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    point = start()
    made = act_during_preparation(monkeypatch, lambda: point.apply(STRICT, accept=()))
    point.apply(WITH_ZIP)
    assert len(made) == 3  # WITH_ZIP, then STRICT, then WITH_ZIP again
    check_balances(point)


def test_after_some_preparations_the_command_computes_all_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = start()
    policies = [policy(GLOBAL, ZIP % f"{{epsilon: {number}}}") for number in (3, 4, 5)]
    real_prepare, count = prepare_policy, 0

    def prepare(state: LedgerState, candidate: CompiledPolicy) -> PreparedPolicy | None:
        nonlocal count
        prepared = real_prepare(state, candidate)
        if candidate is WITH_ZIP:
            count += 1
            point.apply(policies[count - 1])
        return prepared

    monkeypatch.setattr(preparation, "prepare_policy", prepare)
    point.apply(WITH_ZIP)
    assert count == preparation.MAX_PREPARATIONS
    assert point.policy is not None
    assert point.policy.digest == WITH_ZIP.digest
    check_balances(point)


def count_resolutions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the mechanisms of every charge group that is resolved."""
    resolved: list[str] = []
    real = charge_groups.resolve_charge_group

    def follow(enforced: Any, group: Any, resolution: Any = None) -> Any:
        resolved.append(group.mechanisms)
        return real(enforced, group, resolution)

    monkeypatch.setattr(charge_groups, "resolve_charge_group", follow)
    return resolved


def test_a_policy_change_resolves_each_content_once(monkeypatch: pytest.MonkeyPatch) -> None:
    point = start()
    resolved = count_resolutions(monkeypatch)
    point.apply(WITH_ZIP)
    point.budgets()
    point.submit(pure("a3", "0.05", "zip"))
    assert len(resolved) == len(set(resolved)) == 3


def test_a_proposed_policy_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proposal, and its approval, compute the conflicts before they take the lock."""
    point = start()
    made = act_during_preparation(monkeypatch, lambda: change_everything(point))
    waiting = point.propose_policy(WITH_ZIP, (), "olga")
    assert [prepared is not None for prepared in made] == [True]
    check_balances(point)
    made = act_during_preparation(monkeypatch, lambda: point.submit(pure("e", "0.03", "zip")))
    point.approve(waiting.number, "otto")
    assert [prepared is not None for prepared in made] == [True]
    assert point.policy is not None
    assert point.policy.digest == WITH_ZIP.digest
    check_balances(point)


def test_a_proposal_and_its_approval_resolve_each_content_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = start()
    resolved = count_resolutions(monkeypatch)
    waiting = point.propose_policy(WITH_ZIP, (), "olga")
    assert len(resolved) == len(set(resolved)) == 3
    resolved.clear()
    point.approve(waiting.number, "otto")
    point.budgets()
    point.submit(pure("a3", "0.05", "zip"))
    assert len(resolved) == len(set(resolved)) == 3


@pytest.mark.parametrize("is_approved", [False, True])
def test_a_conflict_with_a_proposal_that_came_meanwhile_is_refused(
    monkeypatch: pytest.MonkeyPatch, is_approved: bool
) -> None:
    point = start()
    number = point.propose_policy(STRICT, (), "olga").number if is_approved else 0
    made = act_during_preparation(monkeypatch, lambda: point.submit(pure("more", "0.2", "zip")))
    with pytest.raises(PolicyConflicts, match="zips"):
        if is_approved:
            point.approve(number, "otto")
        else:
            point.propose_policy(STRICT, (), "olga")
    assert len(made) == 2
    assert [proposal.open for proposal in point.proposals.values()] == [True] * is_approved
    check_balances(point)


def test_a_proposal_that_is_answered_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    point = start()
    number = point.propose_policy(WITH_ZIP, (), "olga").number
    act_during_preparation(monkeypatch, lambda: point.reject(number, "otto"))
    with pytest.raises(OperationRejected, match="already rejected"):
        point.approve(number, "otto")
    check_balances(point)


def test_a_proposal_with_older_defaults_is_compiled_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = list(start().records())
    texts = tuple((source.name, source.text) for source in WITH_ZIP.sources)
    old = PolicyProposed("2999-01-01T00:00:00+00:00", "olga", "", "", texts, ())
    digest = compile_recorded_policy(old).digest
    records.append(next_record(records[-1], replace(old, digest=digest)))
    point = DecisionPoint(MemoryStore(records))
    made = act_during_preparation(monkeypatch)
    point.approve(records[-1].sequence, "otto")
    assert not made
    assert point.policy is not None
    assert point.policy.digest == digest
    check_balances(point)


def test_a_refused_answer_prepares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    point = start()
    number = point.propose_policy(WITH_ZIP, (), "olga").number
    made = act_during_preparation(monkeypatch)
    with pytest.raises(OperationRejected, match="another person must answer"):
        point.approve(number, "olga")
    assert not made


def test_releases_before_the_first_policy_are_completed_by_it() -> None:
    point = DecisionPoint(MemoryStore())
    point.import_past(pure("past", "0.1", "zip"), "from the wiki")
    point.apply(WITH_ZIP)
    check_balances(point)
