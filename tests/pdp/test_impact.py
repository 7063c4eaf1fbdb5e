"""The impact of a candidate policy equals the decisions of a decision point with that policy."""

from __future__ import annotations

import random

import pytest
from tests.pdp.builders import GLOBAL, ZIP, policy, pure, started

from dpolicy.ledger.events import (
    ReleaseCommitted,
    ReleaseDecided,
    ReleaseImported,
    ReleaseVoided,
    from_bytes,
)
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp import impact as impacts
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.policy_changes.impact import replay_under_policy
from dpolicy.rules.compiler import CompiledPolicy

CANDIDATES = [
    policy(GLOBAL),
    policy(GLOBAL.replace("epsilon: 2", "epsilon: 1")),
    policy(GLOBAL, ZIP % "{epsilon: 0.5}"),
    policy(ZIP % "{epsilon: 3}", GLOBAL.replace("epsilon: 2", "epsilon: 4")),
]


def history(seed: int) -> DecisionPoint:
    """Return a ledger with every kind of event."""
    chosen = random.Random(seed)
    point = started(GLOBAL, ZIP % "{epsilon: 1}")
    for number in range(25):
        request = pure(
            f"r{number}", chosen.choice(("0.125", "0.25", "1")), *chosen.choice(((), ("zip",)))
        )
        match chosen.choice(("submit", "reserve", "import")):
            case "submit":
                point.submit(request)
            case "import" if number % 5 == 0:
                point.import_past(request)
            case _:
                if point.reserve(request).allowed:
                    end = chosen.choice(("commit", "void", "less", "nothing"))
                    if end == "void":
                        point.void(f"r{number}", "never started")
                    elif end == "commit":
                        point.commit(f"r{number}")
                    elif end == "less":
                        point.commit(f"r{number}", pure(f"r{number}", "0.0625"))
    return point


def naive(point: DecisionPoint, candidate: CompiledPolicy) -> dict[str, bool]:
    """Submit the same requests, in order, to a decision point with the candidate."""
    other = DecisionPoint(MemoryStore())
    other.apply(candidate)
    answers: dict[str, bool] = {}
    for record in point.records():
        match from_bytes(record.payload):
            case ReleaseDecided() as event:
                ask = other.reserve if event.reserved else other.submit
                answers[event.release] = ask(event.body).allowed
            case ReleaseImported() as event:
                other.import_past(event.body)
            case ReleaseCommitted() as event if answers[event.release]:
                other.commit(event.release, event.body)
            case ReleaseVoided() as event if answers[event.release]:
                other.void(event.release, event.because)
    return answers


def differing(point: DecisionPoint, candidate: CompiledPolicy) -> tuple[set[str], set[str]]:
    """Return the releases that the naive replay denies and allows differently."""
    now = {name: entry.status != "denied" for name, entry in point.entries.items()}
    again = naive(point, candidate)
    denied = {name for name, allowed in again.items() if now[name] and not allowed}
    return denied, {name for name, allowed in again.items() if not now[name] and allowed}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("number", range(len(CANDIDATES)))
def test_the_impact_equals_a_naive_replay(seed: int, number: int) -> None:
    point = history(seed)
    impact = replay_under_policy(CANDIDATES[number], point.records())
    assert (set(impact.denied), set(impact.allowed)) == differing(point, CANDIDATES[number])
    assert impact.complete and not impact.unreadable


def test_an_impact_without_earlier_releases_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Canary: decide every release on an empty ledger."""
    real = impacts._Replay.decide

    def forgetful(self: impacts._Replay, event: ReleaseDecided) -> bool | None:
        assert self._state.policy is not None
        return real(impacts._Replay(self._state.policy), event)

    monkeypatch.setattr(impacts._Replay, "decide", forgetful)
    wrong = 0
    for seed in range(6):
        point = history(seed)
        impact = replay_under_policy(CANDIDATES[1], point.records())
        wrong += (set(impact.denied), set(impact.allowed)) != differing(point, CANDIDATES[1])
    assert wrong


def test_a_limited_replay_is_marked_incomplete() -> None:
    point = history(0)
    impact = replay_under_policy(CANDIDATES[0], point.records(), limit=5)
    assert impact.replayed == 5 and not impact.complete


def test_unresolvable_releases_are_listed() -> None:
    point = started()
    point.submit(pure("a", "0.5", "zip"))
    other = "dpolicy: 1\naccounting: {delta: 1e-7}\nunits: {user: {}}\n"
    assert replay_under_policy(policy(GLOBAL, head=other), point.records()).unreadable == ("a",)
