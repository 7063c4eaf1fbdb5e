"""Endpoints for candidate policies: plan and apply."""

from __future__ import annotations

from typing import Any

from dpolicy.pdp.commands import ANY_POLICY
from dpolicy.pdp.policy_changes.conflicts import conflicts_to_json
from dpolicy.pdp.policy_changes.impact import replay_under_policy
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.rules.policy_diff import diff_policies
from dpolicy.rules.tightening import only_tightens
from dpolicy.service.api.releases import proposal_response
from dpolicy.service.auth.principal import Role
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint
from dpolicy.text.shapes import BooleanShape, ListShape, RecordField, RecordShape, TextShape
from dpolicy.text.yaml_reader import Source

#: Maximum number of changes and conflicts in a response; a policy set can have a million rules.
MAX_REPORTED_CHANGES = 1_000

_SOURCE = RecordShape(
    "a source",
    {
        "name": RecordField(TextShape("the name of a file"), required=True),
        "text": RecordField(TextShape(), required=True),
    },
    lambda values, _: Source(str(values["name"]), str(values["text"])),
)
_SOURCES = RecordField(
    ListShape(_SOURCE, "a list of sources", least=1, most=1_000), "the files of a policy set", True
)
_PLAN_BODY = RecordShape(
    "a candidate policy",
    {
        "sources": _SOURCES,
        "replay": RecordField(
            BooleanShape(), "decide recorded releases again under the candidate", default=True
        ),
    },
    lambda values, _: values,
)
_APPLY_BODY = RecordShape(
    "a policy to apply",
    {
        "sources": _SOURCES,
        "accept": RecordField(
            ListShape(TextShape()), "rules whose conflicts are accepted", default=()
        ),
        "because": RecordField(TextShape(), "reason, stored in the ledger", default=""),
    },
    lambda values, _: values,
)


def handle_plan(call: ApiRequest) -> ApiResponse:
    """Return the changes, conflicts and changed decisions of a candidate policy."""
    candidate, active = compile_policy(call.body["sources"]), call.decision_point.policy
    changes = [] if active is None else diff_policies(active, candidate)
    conflicts = call.decision_point.conflicts(candidate)
    impact = (
        replay_under_policy(candidate, call.decision_point.records()).as_json()
        if call.body["replay"]
        else None
    )
    return ApiResponse(
        {
            "policy": candidate.digest,
            "total": candidate.rule_count,
            "kept": candidate.kept_count,
            "diagnostics": [warning.as_json() for warning in candidate.warnings],
            "changed": len(changes),
            "changes": [change.as_json() for change in changes[:MAX_REPORTED_CHANGES]],
            **conflicts_to_json(conflicts[:MAX_REPORTED_CHANGES]),
            "impact": impact,
            "needs-second-person": _needs_approval(call, active, candidate),
        }
    )


def handle_apply(call: ApiRequest) -> ApiResponse:
    """Activate a policy, or propose it if it needs approval."""
    body: dict[str, Any] = call.body
    candidate, by = compile_policy(body["sources"]), call.principal.name
    accept, because = [str(name) for name in body["accept"]], str(body["because"])
    active = call.decision_point.policy
    if _needs_approval(call, active, candidate):
        return proposal_response(call.decision_point.propose_policy(candidate, accept, by, because))
    sequence = call.decision_point.apply(
        candidate,
        accept,
        by,
        because,
        expected_policy=active if call.access.approval.policy else ANY_POLICY,
    )
    return ApiResponse({"applied": True, "sequence": sequence, "policy": candidate.digest})


def _needs_approval(
    call: ApiRequest, active: CompiledPolicy | None, candidate: CompiledPolicy
) -> bool:
    return call.access.approval.policy and not only_tightens(active, candidate)


_OFFICER = frozenset({Role.OFFICER})
_READERS = frozenset({Role.OFFICER, Role.APPROVER, Role.AUDITOR})

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/policies:plan",
        "plan",
        "Compare a candidate policy with the active one without writing to the ledger.",
        handle_plan,
        _READERS,
        "Plan",
        _PLAN_BODY,
        problems=("invalid",),
    ),
    Endpoint(
        "POST",
        "/v1/policies:apply",
        "apply",
        "Activate a policy.",
        handle_apply,
        _OFFICER,
        "AppliedPolicy",
        _APPLY_BODY,
        problems=("invalid", "conflicting", "misused", "policy-changed"),
        may_need_approval=True,
    ),
)
