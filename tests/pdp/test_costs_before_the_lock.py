"""First costs by quadrature: a release is costed before the writer takes the lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.pdp.builders import GLOBAL, HEAD, started

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.journal.journal import Journal
from dpolicy.pdp.plans.planned_requests import PlanMemo, PlannedRequest
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.privacy.reserves import ladder_costs

RESERVE = HEAD.replace("1e-7}", "1e-7, profile: anchored}")
SUBMITS: dict[str, Callable[[DecisionPoint, Any], Any]] = {
    "submit": lambda point, release: point.submit(release),
    "reserve": lambda point, release: point.reserve(release),
    "submit_many": lambda point, release: point.submit_many([release]),
}


def training(name: str) -> dict[str, Any]:
    noise = {"kind": "dp-sgd", "noise-multiplier": 1.7, "sampling-rate": 0.005, "steps": 10}
    return {"release": name, "mechanisms": [{"mechanism": noise, "unit": "user"}]}


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield where each quadrature ran: in a command of the writer, or before it."""
    recorded: list[str] = []
    is_writing: list[bool] = []
    write, certify = Journal.write, ladder_costs._certify

    def mark(self: Journal, command: Callable[[Any], Any], *more: Any, **named: Any) -> Any:
        def marked(log: Any) -> Any:
            is_writing.append(True)
            try:
                return command(log)
            finally:
                is_writing.pop()

        return write(self, marked, *more, **named)

    def record(*arguments: Any) -> Any:
        recorded.append("lock" if is_writing else "before")
        return certify(*arguments)

    monkeypatch.setattr(Journal, "write", mark)
    monkeypatch.setattr(ladder_costs, "_certify", record)
    ladder_costs.sampled_gaussian_costs.cache_clear()
    yield recorded
    ladder_costs.sampled_gaussian_costs.cache_clear()


@pytest.mark.parametrize("submit", SUBMITS.values(), ids=SUBMITS)
@pytest.mark.parametrize("is_opened_again", [False, True])
def test_a_first_cost_is_computed_before_the_lock(
    submit: Callable[..., Any], is_opened_again: bool, places: list[str]
) -> None:
    store = MemoryStore()
    point = started(GLOBAL, store=store, head=RESERVE)
    if is_opened_again:
        point = DecisionPoint(store)
    submit(point, training("a"))
    assert set(places) == {"before"}


def test_a_cost_without_a_plan_is_computed_under_the_lock(
    places: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canary: the two places differ."""

    def plan_nothing(_memo: PlanMemo, release: Any, *_: Any) -> PlannedRequest:
        request = parse_request(release)
        return PlannedRequest(request.id, None, request)

    monkeypatch.setattr(PlanMemo, "plan", plan_nothing)
    started(GLOBAL, head=RESERVE).submit(training("a"))
    assert set(places) == {"lock"}
