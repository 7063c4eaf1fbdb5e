"""The policy that decides whether a request needs approval must still be active at the write."""

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
from dpolicy.rules.tightening import only_tightens
from dpolicy.service.api import batches, policies, releases
from dpolicy.service.auth import authorization
from dpolicy.service.auth.access_rules import AccessRules, ApprovalRules
from dpolicy.service.auth.principal import Principal, Role
from dpolicy.service.http import release_shapes
from dpolicy.service.http.endpoint import ApiRequest
from dpolicy.service.http.metrics import Metrics
from dpolicy.text.yaml_reader import Source

APPROVE_TUNING = AccessRules(approval=ApprovalRules(when='labels.stage == "tuning"', void=False))
#: A policy in which a mechanism without the label `stage` is `tuning` and needs approval.
TUNING_BY_DEFAULT = POLICY.replace("default: final", "default: tuning")


def sources(text: str) -> list[Source]:
    return [Source("policy.yaml", text)]


def with_budget(epsilon: int) -> str:
    return POLICY.replace("epsilon: 2,", f"epsilon: {epsilon},")


def open_point(text: str) -> DecisionPoint:
    point = DecisionPoint(MemoryStore())
    point.apply(compile_policy(sources(text)), by="setup")
    return point


def api_request(
    point: DecisionPoint, person: str, body: Any, access: AccessRules = APPROVE_TUNING
) -> ApiRequest:
    roles = frozenset({Role.OFFICER, Role.ANALYST})
    return ApiRequest(
        point, access, Metrics(), Principal(person, roles), "", {"release": "a"}, {}, body
    )


def apply_request(point: DecisionPoint, person: str, text: str) -> ApiRequest:
    return api_request(
        point, person, {"sources": sources(text), "accept": [], "because": "it is time"}
    )


def with_action_after_first_call(
    function: Callable[..., Any], action: Callable[[], object]
) -> Callable[..., Any]:
    """Wrap a function so that `action` runs after its first call."""
    pending = [action]

    def wrapper(*arguments: Any) -> Any:
        result = function(*arguments)
        if pending:
            pending.pop()()
        return result

    return wrapper


def test_a_policy_is_not_applied_if_the_active_policy_changed_during_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = open_point(with_budget(10))
    tightens_after_change = with_action_after_first_call(
        only_tightens, lambda: policies.handle_apply(apply_request(point, "otto", with_budget(1)))
    )
    monkeypatch.setattr(policies, "only_tightens", tightens_after_change)
    with pytest.raises(OperationRejected) as error:
        policies.handle_apply(apply_request(point, "olga", with_budget(5)))
    assert error.value.code == "policy-changed"
    assert point.policy is not None
    assert point.policy.digest == compile_policy(sources(with_budget(1))).digest
    assert policies.handle_apply(apply_request(point, "olga", with_budget(5))).status == 202


@pytest.fixture
def changing_point(monkeypatch: pytest.MonkeyPatch) -> DecisionPoint:
    """A decision point whose active policy changes between authorization and write."""
    point = open_point(POLICY)
    matches_then_change = with_action_after_first_call(
        authorization._matches, lambda: point.apply(compile_policy(sources(TUNING_BY_DEFAULT)))
    )
    monkeypatch.setattr(authorization, "_matches", matches_then_change)
    return point


@pytest.mark.parametrize("mode", release_shapes.MODES)
def test_a_release_is_authorized_again_under_the_new_policy(
    changing_point: DecisionPoint, mode: str
) -> None:
    request = parse_request(release("a"))
    assert releases.handle_submit(api_request(changing_point, "ana", (request, mode))).status == 202
    assert not changing_point.entries and len(changing_point.proposals) == 1


def test_a_submission_gives_up_if_the_active_policy_keeps_changing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = open_point(POLICY)
    matches = authorization._matches
    changes = 0

    def matches_then_change(*arguments: Any) -> bool:
        nonlocal changes
        changes += 1
        result = matches(*arguments)
        point.apply(compile_policy(sources(with_budget(10 + changes))))
        return result

    monkeypatch.setattr(authorization, "_matches", matches_then_change)
    with pytest.raises(OperationRejected) as error:
        releases.handle_submit(api_request(point, "ana", (parse_request(release("a")), "commit")))
    assert error.value.code == "policy-changed"
    assert str(error.value) == "the active policy changed 10 times during the request; retry it"
    assert changes == releases.MAX_DECISION_ATTEMPTS and not point.entries


def test_a_commit_fails_if_the_active_policy_changed(changing_point: DecisionPoint) -> None:
    changing_point.reserve({**release("a"), "by": "ana"}, "ana")
    with pytest.raises(OperationRejected) as error:
        releases.handle_commit(
            api_request(changing_point, "ana", parse_request(release("a", "0.0005")))
        )
    assert error.value.code == "policy-changed"
    assert changing_point.entries["a"].status == "reserved"


def test_a_round_fails_if_the_active_policy_changed(changing_point: DecisionPoint) -> None:
    body = {"releases": [parse_request(release("a"))], "strategy": "efficient", "dry-run": False}
    with pytest.raises(OperationRejected) as error:
        batches.handle_allocate(api_request(changing_point, "olga", body))
    assert error.value.code == "policy-changed"
    assert not changing_point.entries


def test_a_proposal_has_one_mode() -> None:
    point = open_point(TUNING_BY_DEFAULT)
    request = parse_request(release("a"))
    proposed = releases.handle_submit(api_request(point, "ana", (request, "reserve")))
    assert (
        releases.handle_submit(api_request(point, "ana", (request, "reserve"))).value
        == proposed.value
    )
    with pytest.raises(OperationRejected) as error:
        releases.handle_submit(api_request(point, "ana", (request, "commit")))
    assert error.value.code == "id-taken"
    point.approve(proposed.value["proposal"], "pia")
    assert releases.handle_submit(api_request(point, "ana", (request, "reserve"))).value["replayed"]
    with pytest.raises(OperationRejected) as error:
        releases.handle_submit(api_request(point, "ana", (request, "commit")))
    assert error.value.code == "id-taken"
