"""Whether two persons are needed is asked before the lock is taken, and must hold under it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.service.servers import POLICY, release

from dpolicy.errors import OperationRejected
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.rules.compiler import compile_policy
from dpolicy.rules.policy_diff import only_tightens
from dpolicy.service.api import batches, policies, releases
from dpolicy.service.auth import authorization
from dpolicy.service.auth.access_rules import AccessRules, ApprovalRules
from dpolicy.service.auth.principal import Principal, Role
from dpolicy.service.http.endpoint import ApiRequest
from dpolicy.service.http.metrics import Metrics
from dpolicy.text.yaml_reader import Source

TUNING = AccessRules(approval=ApprovalRules(when='labels.stage == "tuning"', void=False))
#: Who says nothing of a stage is tuning.
CAUTIOUS = POLICY.replace("default: final", "default: tuning")


def sources(text: str) -> list[Source]:
    return [Source("policy.yaml", text)]


def with_budget(epsilon: int) -> str:
    return POLICY.replace("epsilon: 2,", f"epsilon: {epsilon},")


def opened(text: str) -> DecisionPoint:
    point = DecisionPoint(MemoryStore())
    point.apply(compile_policy(sources(text)), by="setup")
    return point


def call(point: DecisionPoint, person: str, body: Any, access: AccessRules = TUNING) -> ApiRequest:
    roles = frozenset({Role.OFFICER, Role.ANALYST})
    return ApiRequest(
        point, access, Metrics(), Principal(person, roles), "", {"release": "a"}, {}, body
    )


def applying(point: DecisionPoint, person: str, text: str) -> ApiRequest:
    return call(point, person, {"sources": sources(text), "accept": [], "because": "it is time"})


def once_after(found: Callable[..., Any], then: Callable[[], object]) -> Callable[..., Any]:
    """The same function, but something happens when it has answered for the first time."""
    left = [then]

    def slow(*said: Any) -> Any:
        answer = found(*said)
        if left:
            left.pop()()
        return answer

    return slow


def test_one_officer_does_not_loosen_what_another_tightens_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = opened(with_budget(10))
    tighten = once_after(
        only_tightens, lambda: policies.handle_apply(applying(point, "otto", with_budget(1)))
    )
    monkeypatch.setattr(policies, "only_tightens", tighten)
    with pytest.raises(OperationRejected) as error:
        policies.handle_apply(applying(point, "olga", with_budget(5)))
    assert error.value.code == "policy-changed"
    assert point.policy is not None
    assert point.policy.digest == compile_policy(sources(with_budget(1))).digest
    assert policies.handle_apply(applying(point, "olga", with_budget(5))).status == 202


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> DecisionPoint:
    """A point whose policy changes between the question and the act."""
    point = opened(POLICY)
    slow = once_after(
        authorization._matches, lambda: point.apply(compile_policy(sources(CAUTIOUS)))
    )
    monkeypatch.setattr(authorization, "_matches", slow)
    return point


@pytest.mark.parametrize("mode", releases.MODES)
def test_a_release_is_judged_again_under_the_policy_that_decides_it(
    meanwhile: DecisionPoint, mode: str
) -> None:
    asked = parse_request(release("a"))
    assert releases.handle_submit(call(meanwhile, "ana", (asked, mode))).status == 202
    assert not meanwhile.entries and len(meanwhile.proposals) == 1


def test_what_was_run_is_held_against_the_policy_of_then(meanwhile: DecisionPoint) -> None:
    meanwhile.reserve({**release("a"), "by": "ana"}, "ana")
    with pytest.raises(OperationRejected) as error:
        releases.handle_commit(call(meanwhile, "ana", parse_request(release("a", "0.0005"))))
    assert error.value.code == "policy-changed"
    assert meanwhile.entries["a"].status == "reserved"


def test_a_round_is_held_against_the_policy_of_then(meanwhile: DecisionPoint) -> None:
    body = {"releases": [parse_request(release("a"))], "strategy": "efficient", "dry-run": False}
    with pytest.raises(OperationRejected) as error:
        batches.handle_allocate(call(meanwhile, "olga", body))
    assert error.value.code == "policy-changed"
    assert not meanwhile.entries


def test_a_proposal_is_of_one_mode() -> None:
    point = opened(CAUTIOUS)
    asked = parse_request(release("a"))
    waiting = releases.handle_submit(call(point, "ana", (asked, "reserve")))
    assert releases.handle_submit(call(point, "ana", (asked, "reserve"))).value == waiting.value
    with pytest.raises(OperationRejected) as error:
        releases.handle_submit(call(point, "ana", (asked, "commit")))
    assert error.value.code == "id-taken"
    point.approve(waiting.value["proposal"], "pia")
    assert releases.handle_submit(call(point, "ana", (asked, "reserve"))).value["replayed"]
    with pytest.raises(OperationRejected) as error:
        releases.handle_submit(call(point, "ana", (asked, "commit")))
    assert error.value.code == "id-taken"
