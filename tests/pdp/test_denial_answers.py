"""Advice for denials: it is searched once for the same charges, and again after a charge."""

from __future__ import annotations

import pytest
from tests.pdp.builders import pure, started

from dpolicy.decisions.denial_advice.advice import find_advice
from dpolicy.pdp import denial_answers
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.state.ledger_state import LedgerState


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The bodies for which advice was searched."""
    bodies: list[object] = []

    def count(trials: object, body: object) -> object:
        bodies.append(body)
        return find_advice(trials, body)  # type: ignore[arg-type]

    monkeypatch.setattr(denial_answers, "find_advice", count)
    return bodies


def submit_and_read_offers(point: DecisionPoint, name: str) -> list[object]:
    """Submit a release of ε 5, which is denied; return what is offered."""
    decision = point.submit(pure(name, "5", "zip"))
    assert not decision.allowed
    return [offer["factor"] for offer in decision.as_json()["would-fit"]]


def test_advice_is_searched_again_after_a_charge(searches: list[object]) -> None:
    point = started()
    first = submit_and_read_offers(point, "a")
    assert submit_and_read_offers(point, "b") == first
    assert len(searches) == 1
    point.submit(pure("charged", "1", "zip"))
    assert submit_and_read_offers(point, "c") != first
    assert len(searches) == 2


def stay_true_after_a_reload(point: DecisionPoint) -> None:
    """Keep advice for one charge; load the state from a snapshot, and charge once more."""
    point.submit(pure("charged", "0.5", "zip"))
    before = submit_and_read_offers(point, "a")
    point._journal._written = 1
    point._journal._save_snapshot(1)
    point._journal._reader.is_doubtful = True
    point.submit(pure("more", "0.5", "zip"))
    assert submit_and_read_offers(point, "b") != before


def test_advice_is_searched_again_after_a_reload() -> None:
    point = started()
    stay_true_after_a_reload(point)


def test_a_count_of_charges_would_give_old_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Canary: a count restarts when a state is restored from a snapshot."""
    counts: dict[int, int] = {}
    restore = LedgerState.restore

    def count_from_zero(state: LedgerState, *parts: object) -> None:
        restore(state, *parts)  # type: ignore[arg-type]
        counts[id(state)] = 0

    change = LedgerState._count_new_release

    def count(state: LedgerState, *parts: object) -> object:
        group = change(state, *parts)  # type: ignore[arg-type]
        counts[id(state)] = counts.get(id(state), 0) + 1
        state.charged_sequence = counts[id(state)]
        return group

    change_count = LedgerState._change_count

    def change_and_count(state: LedgerState, *parts: object, **more: object) -> None:
        change_count(state, *parts, **more)  # type: ignore[arg-type]
        counts[id(state)] = counts.get(id(state), 0) + 1
        state.charged_sequence = counts[id(state)]

    monkeypatch.setattr(LedgerState, "restore", count_from_zero)
    monkeypatch.setattr(LedgerState, "_count_new_release", count)
    monkeypatch.setattr(LedgerState, "_change_count", change_and_count)
    point = started()
    with pytest.raises(AssertionError):
        stay_true_after_a_reload(point)
