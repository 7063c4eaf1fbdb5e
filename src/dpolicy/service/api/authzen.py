"""Endpoints of the AuthZEN evaluation API. They decide releases without charging a budget.

A release is the resource: its id is the id of the resource, and `mechanisms` is a property. An
evaluation that is not a valid release gets the decision `false` with a reason, as the AuthZEN
specification requires.
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

#: Maximum number of evaluations in one request.
MAX_EVALUATIONS = 50

_PARTS = ("subject", "action", "resource", "context")
#: `evaluations_semantic` → decision after which evaluation stops; None to evaluate all.
_STOP_DECISIONS = {
    "execute_all": None,
    "deny_on_first_deny": False,
    "permit_on_first_permit": True,
}


@dataclass(frozen=True, slots=True)
class _EvaluationShape:
    """Shape of an evaluation request. The specification allows additional keys."""

    required: tuple[str, ...]
    title: str = "an evaluation request"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        missing = [f"`{part}`" for part in self.required if node.get(part) is None]
        if missing:
            report("P008", f"{self.title} needs {' and '.join(missing)}", node.span, None)
        for part in (*_PARTS, "options"):
            part_node = node.get(part)
            if part_node is not None and not isinstance(part_node, MapNode):
                report_wrong_type(part_node, "a map", report)
        evaluations = node.get("evaluations")
        if evaluations is not None:
            ListShape(_MapShape(), "a list of maps", most=MAX_EVALUATIONS).read(evaluations, report)
        return node_to_plain(node)

    def schema(self) -> dict[str, Any]:
        part = _MapShape().schema()
        parts = dict.fromkeys((*_PARTS, "options"), part)
        if "evaluations" in self.required:
            parts["evaluations"] = {"type": "array", "items": part, "maxItems": MAX_EVALUATIONS}
        return {"type": "object", "properties": parts, "required": list(self.required)}


@dataclass(frozen=True, slots=True)
class _MapShape:
    """Shape of a map with any keys."""

    title: str = "a map"

    def read(self, node: TextNode, report: Report) -> Any:
        return node if isinstance(node, MapNode) else report_wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


def handle_evaluation(call: ApiRequest) -> ApiResponse:
    """Return whether a release would be allowed."""
    return ApiResponse(_evaluate(call, call.body), includes_position=False)


def handle_evaluations(call: ApiRequest) -> ApiResponse:
    """Evaluate several releases; parts of the request itself are defaults for each evaluation."""
    shared = {part: call.body[part] for part in _PARTS if part in call.body}
    evaluations = [{**shared, **evaluation} for evaluation in call.body["evaluations"]]
    results = list(_evaluate_all(call, evaluations))
    return ApiResponse({"evaluations": results}, includes_position=False)


def _evaluate_all(call: ApiRequest, evaluations: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    semantic = call.body.get("options", {}).get("evaluations_semantic", "execute_all")
    if not isinstance(semantic, str) or semantic not in _STOP_DECISIONS:
        raise RequestRefused(
            "bad-request", f"`evaluations_semantic` must be one of {', '.join(_STOP_DECISIONS)}"
        )
    for evaluation in evaluations:
        result = _evaluate(call, evaluation)
        yield result
        if result["decision"] is _STOP_DECISIONS[semantic]:
            return


def _evaluate(call: ApiRequest, evaluation: dict[str, Any]) -> dict[str, Any]:
    try:
        release = with_caller_as_author(call, parse_request(_release_body(evaluation)))
        needs_approval = requires_approval(call, [release])
        decision = call.decision_point.check(release)
    except (LedgerUnavailable, LedgerDamaged):
        raise
    except DPolicyError as error:
        code, detail, _ = problem_from_error(error)
        return {"decision": False, "context": {"code": code, "reason": detail}}
    context = {
        "policy": decision.policy,
        "exceeded": list(decision.exceeded_rules),
        "uncovered": list(decision.uncovered),
        "would-fit": [dict(offer) for offer in decision.counter_offers],
        "needs-second-person": needs_approval,
    }
    return {"decision": decision.allowed and not needs_approval, "context": context}


def _release_body(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Return the body of the release to evaluate. Raise `RequestRefused` if a part is missing."""
    parts = [evaluation.get(part) for part in ("subject", "action", "resource")]
    if not all(isinstance(part, dict) for part in parts):
        raise RequestRefused("bad-request", "`subject`, `action` and `resource` are required")
    subject, action, resource = (dict(part or {}) for part in parts)
    if action.get("name") != "release" or resource.get("type") != "release":
        raise RequestRefused(
            "bad-request", "the action must be `release` on a resource of type `release`"
        )
    properties = resource.get("properties")
    if not isinstance(properties, dict):
        raise RequestRefused("bad-request", "the resource needs `properties` with `mechanisms`")
    return {**properties, "release": resource.get("id"), "by": subject.get("id")}


def handle_configuration(call: ApiRequest) -> ApiResponse:
    """Return the URLs of the evaluation API, below the base URL that the caller used."""
    base = call.base_url
    return ApiResponse(
        {
            "policy_decision_point": base,
            "access_evaluation_endpoint": f"{base}/access/v1/evaluation",
            "access_evaluations_endpoint": f"{base}/access/v1/evaluations",
        },
        includes_position=False,
    )


_CALLERS = frozenset({Role.ANALYST, Role.OFFICER})

ENDPOINTS = (
    Endpoint(
        "POST",
        "/access/v1/evaluation",
        "evaluation",
        "AuthZEN: evaluate one release.",
        handle_evaluation,
        _CALLERS,
        "Evaluation",
        _EvaluationShape(("subject", "action", "resource")),
        problems=("invalid",),
    ),
    Endpoint(
        "POST",
        "/access/v1/evaluations",
        "evaluations",
        "AuthZEN: evaluate several releases.",
        handle_evaluations,
        _CALLERS,
        "Evaluations",
        _EvaluationShape(("evaluations",)),
        problems=("invalid",),
    ),
    Endpoint(
        "GET",
        "/.well-known/authzen-configuration",
        "authzen-configuration",
        "AuthZEN: URLs of the evaluation API.",
        handle_configuration,
        frozenset(),
        "AuthzenConfiguration",
        blocks=False,
    ),
)
