"""The AuthZEN evaluation API as another way to ask for a dry run; nothing here ever spends.

A release is the resource: its id is the id of the resource, its mechanisms are a property. What is
not understood is answered with `false` and the reason, as the specification has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dpolicy.enforcement.judgement import read_request
from dpolicy.errors import DPolicyError, LedgerDamaged, LedgerUnavailable, Refused
from dpolicy.language.release import plain
from dpolicy.language.shape import wrong_type
from dpolicy.language.source import Map, Node, Report
from dpolicy.service.endpoint import Answer, Call, Endpoint
from dpolicy.service.permission import in_own_name, needs_second_person
from dpolicy.service.principal import Role
from dpolicy.service.problem import problem_of

#: Evaluations in one request.
MOST_EVALUATIONS = 50

_PARTS = ("subject", "action", "resource", "context")
_SEMANTICS = {
    "execute_all": None,
    "deny_on_first_deny": False,
    "permit_on_first_permit": True,
}


@dataclass(frozen=True, slots=True)
class _Anything:
    """Any map: the specification lets callers add what they like."""

    title: str = "a map"

    def read(self, node: Node, report: Report) -> Any:
        if not isinstance(node, Map):
            return wrong_type(node, self.title, report)
        return plain(node)

    def schema(self) -> dict[str, Any]:
        part = {"type": "object"}
        return {"type": "object", "properties": dict.fromkeys(_PARTS, part)}


def evaluation(call: Call) -> Answer:
    """Whether one release would be allowed."""
    return Answer(_evaluated(call, call.body), placed=False)


def evaluations(call: Call) -> Answer:
    """The same for several; what they share is said once."""
    listed = call.body.get("evaluations", [])
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise Refused("bad-request", "`evaluations` is a list of maps")
    if len(listed) > MOST_EVALUATIONS:
        raise Refused("too-large", f"at most {MOST_EVALUATIONS} evaluations at once")
    shared = {part: call.body[part] for part in _PARTS if part in call.body}
    asked = [{**shared, **one} for one in listed]
    return Answer({"evaluations": list(_each(call, asked))}, placed=False)


def _each(call: Call, asked: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    options = call.body.get("options", {})
    said = options.get("evaluations_semantic", "execute_all") if isinstance(options, dict) else ""
    if not isinstance(said, str) or said not in _SEMANTICS:
        raise Refused("bad-request", f"`evaluations_semantic` is one of {', '.join(_SEMANTICS)}")
    for one in asked:
        found = _evaluated(call, one)
        yield found
        if found["decision"] is _SEMANTICS[said]:
            return


def _evaluated(call: Call, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        body = _release(asked)
        release = in_own_name(call, read_request(body))
        second = needs_second_person(call, [release])
        decision = call.point.check(release)
    except (LedgerUnavailable, LedgerDamaged):
        raise
    except DPolicyError as error:
        code, detail, _ = problem_of(error)
        return {"decision": False, "context": {"code": code, "reason": detail}}
    context = {
        "policy": decision.policy,
        "broken": list(decision.broken),
        "uncovered": list(decision.uncovered),
        "would-fit": [dict(offer) for offer in decision.would_fit],
        "needs-second-person": second,
    }
    return {"decision": decision.allowed and not second, "context": context}


def _release(asked: dict[str, Any]) -> dict[str, Any]:
    """The release that an evaluation is about. Raises `Refused`."""
    parts = [asked.get(part) for part in ("subject", "action", "resource")]
    if not all(isinstance(part, dict) for part in parts):
        raise Refused("bad-request", "say `subject`, `action` and `resource`")
    subject, action, resource = (dict(part or {}) for part in parts)
    if action.get("name") != "release" or resource.get("type") != "release":
        raise Refused("bad-request", "the action is `release`, on a resource of type `release`")
    told = resource.get("properties")
    if not isinstance(told, dict):
        raise Refused("bad-request", "the mechanisms are a property of the resource")
    return {**told, "release": resource.get("id"), "by": subject.get("id")}


def configuration(call: Call) -> Answer:
    """Where the evaluation API is; the address is the one that the caller used."""
    base = call.base
    return Answer(
        {
            "policy_decision_point": base,
            "access_evaluation_endpoint": f"{base}/access/v1/evaluation",
            "access_evaluations_endpoint": f"{base}/access/v1/evaluations",
        },
        placed=False,
    )


_ASK = frozenset({Role.ANALYST, Role.OFFICER})

ENDPOINTS = (
    Endpoint(
        "POST",
        "/access/v1/evaluation",
        "evaluation",
        "AuthZEN: would a release be allowed?",
        evaluation,
        _ASK,
        "Evaluation",
        _Anything(),
        problems=("invalid",),
    ),
    Endpoint(
        "POST",
        "/access/v1/evaluations",
        "evaluations",
        "AuthZEN: would releases be allowed?",
        evaluations,
        _ASK,
        "Evaluations",
        _Anything(),
        problems=("invalid",),
    ),
    Endpoint(
        "GET",
        "/.well-known/authzen-configuration",
        "authzen-configuration",
        "AuthZEN: where to ask.",
        configuration,
        frozenset(),
        "AuthzenConfiguration",
        blocks=False,
    ),
)
