"""The AuthZEN evaluation API as another way to ask for a dry run; nothing here ever spends.

A release is the resource: its id is the id of the resource, its mechanisms are a property. What is
not understood is answered with `false` and the reason, as the specification has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dpolicy.errors import DPolicyError, LedgerDamaged, LedgerUnavailable, RequestRefused
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.releases.release_format import node_to_plain
from dpolicy.service.auth.authorization import requires_approval, with_caller_as_author
from dpolicy.service.auth.principal import Role
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint
from dpolicy.service.http.problem_details import problem_from_error
from dpolicy.text.shapes import ListShape, report_wrong_type
from dpolicy.text.yaml_reader import MapNode, Report, TextNode

#: Evaluations in one request.
MAX_EVALUATIONS = 50

_PARTS = ("subject", "action", "resource", "context")
_SEMANTICS = {
    "execute_all": None,
    "deny_on_first_deny": False,
    "permit_on_first_permit": True,
}


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request as the specification has it, to which callers may add what they like."""

    needed: tuple[str, ...]
    title: str = "an evaluation request"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        missing = [f"`{part}`" for part in self.needed if node.get(part) is None]
        if missing:
            report("P008", f"{self.title} needs {' and '.join(missing)}", node.span, None)
        for part in (*_PARTS, "options"):
            if (said := node.get(part)) is not None and not isinstance(said, MapNode):
                report_wrong_type(said, "a map", report)
        listed = node.get("evaluations")
        if listed is not None:
            ListShape(_Part(), "a list of maps", most=MAX_EVALUATIONS).read(listed, report)
        return node_to_plain(node)

    def schema(self) -> dict[str, Any]:
        part = _Part().schema()
        parts = dict.fromkeys((*_PARTS, "options"), part)
        if "evaluations" in self.needed:
            parts["evaluations"] = {"type": "array", "items": part, "maxItems": MAX_EVALUATIONS}
        return {"type": "object", "properties": parts, "required": list(self.needed)}


@dataclass(frozen=True, slots=True)
class _Part:
    """Any map."""

    title: str = "a map"

    def read(self, node: TextNode, report: Report) -> Any:
        return node if isinstance(node, MapNode) else report_wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


def handle_evaluation(call: ApiRequest) -> ApiResponse:
    """Whether one release would be allowed."""
    return ApiResponse(_evaluated(call, call.body), includes_position=False)


def handle_evaluations(call: ApiRequest) -> ApiResponse:
    """The same for several; what they share is said once."""
    shared = {part: call.body[part] for part in _PARTS if part in call.body}
    asked = [{**shared, **one} for one in call.body["evaluations"]]
    return ApiResponse({"evaluations": list(_each(call, asked))}, includes_position=False)


def _each(call: ApiRequest, evaluations: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    said = call.body.get("options", {}).get("evaluations_semantic", "execute_all")
    if not isinstance(said, str) or said not in _SEMANTICS:
        raise RequestRefused(
            "bad-request", f"`evaluations_semantic` is one of {', '.join(_SEMANTICS)}"
        )
    for one in evaluations:
        found = _evaluated(call, one)
        yield found
        if found["decision"] is _SEMANTICS[said]:
            return


def _evaluated(call: ApiRequest, evaluation: dict[str, Any]) -> dict[str, Any]:
    try:
        body = _release(evaluation)
        release = with_caller_as_author(call, parse_request(body))
        second = requires_approval(call, [release])
        decision = call.decision_point.check(release)
    except (LedgerUnavailable, LedgerDamaged):
        raise
    except DPolicyError as error:
        code, detail, _ = problem_from_error(error)
        return {"decision": False, "context": {"code": code, "reason": detail}}
    context = {
        "policy": decision.policy,
        "broken": list(decision.broken),
        "uncovered": list(decision.uncovered),
        "would-fit": [dict(offer) for offer in decision.counter_offers],
        "needs-second-person": second,
    }
    return {"decision": decision.allowed and not second, "context": context}


def _release(evaluation: dict[str, Any]) -> dict[str, Any]:
    """The release that an evaluation is about. Raises `Refused`."""
    parts = [evaluation.get(part) for part in ("subject", "action", "resource")]
    if not all(isinstance(part, dict) for part in parts):
        raise RequestRefused("bad-request", "say `subject`, `action` and `resource`")
    subject, action, resource = (dict(part or {}) for part in parts)
    if action.get("name") != "release" or resource.get("type") != "release":
        raise RequestRefused(
            "bad-request", "the action is `release`, on a resource of type `release`"
        )
    told = resource.get("properties")
    if not isinstance(told, dict):
        raise RequestRefused("bad-request", "the mechanisms are a property of the resource")
    return {**told, "release": resource.get("id"), "by": subject.get("id")}


def handle_configuration(call: ApiRequest) -> ApiResponse:
    """Where the evaluation API is; the address is the one that the caller used."""
    base = call.base_url
    return ApiResponse(
        {
            "policy_decision_point": base,
            "access_evaluation_endpoint": f"{base}/access/v1/evaluation",
            "access_evaluations_endpoint": f"{base}/access/v1/evaluations",
        },
        includes_position=False,
    )


_ASK = frozenset({Role.ANALYST, Role.OFFICER})

ENDPOINTS = (
    Endpoint(
        "POST",
        "/access/v1/evaluation",
        "evaluation",
        "AuthZEN: would a release be allowed?",
        handle_evaluation,
        _ASK,
        "Evaluation",
        _Asked(("subject", "action", "resource")),
        problems=("invalid",),
    ),
    Endpoint(
        "POST",
        "/access/v1/evaluations",
        "evaluations",
        "AuthZEN: would releases be allowed?",
        handle_evaluations,
        _ASK,
        "Evaluations",
        _Asked(("evaluations",)),
        problems=("invalid",),
    ),
    Endpoint(
        "GET",
        "/.well-known/authzen-configuration",
        "authzen-configuration",
        "AuthZEN: where to ask.",
        handle_configuration,
        frozenset(),
        "AuthzenConfiguration",
        blocks=False,
    ),
)
