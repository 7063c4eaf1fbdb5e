"""A candidate policy over HTTP: what it would change, and putting it in force."""

from __future__ import annotations

from typing import Any

from dpolicy.pdp.commands import ANY_POLICY
from dpolicy.pdp.conflicts import conflict_to_json
from dpolicy.pdp.impact import replay_under_policy
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.rules.policy_diff import diff_policies, only_tightens
from dpolicy.service.api.releases import proposal_response
from dpolicy.service.auth.principal import Role
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint
from dpolicy.text.shapes import BooleanShape, ListShape, RecordField, RecordShape, TextShape
from dpolicy.text.yaml_reader import Source

#: Differences and conflicts that are told; there can be a million rules.
MAX_REPORTED_CHANGES = 1_000

_SOURCE = RecordShape(
    "a source",
    {
        "name": RecordField(TextShape("the name of a file"), required=True),
        "text": RecordField(TextShape(), required=True),
    },
    lambda v, _: Source(str(v["name"]), str(v["text"])),
)
_SOURCES = RecordField(
    ListShape(_SOURCE, "a list of sources", least=1, most=1_000), "the files of a policy set", True
)
_PLAN = RecordShape(
    "a candidate",
    {
        "sources": _SOURCES,
        "replay": RecordField(BooleanShape(), "decide the past again", default=True),
    },
    lambda values, _: values,
)
_APPLY = RecordShape(
    "a policy to apply",
    {
        "sources": _SOURCES,
        "accept": RecordField(
            ListShape(TextShape()), "rules whose conflicts are accepted", default=()
        ),
        "because": RecordField(TextShape(), "why, for the record", default=""),
    },
    lambda values, _: values,
)


def handle_plan(call: ApiRequest) -> ApiResponse:
    """What a candidate would change, what conflicts, and what would have been decided otherwise."""
    candidate, old = compile_policy(call.body["sources"]), call.decision_point.policy
    changes = [] if old is None else diff_policies(old, candidate)
    found = call.decision_point.conflicts(candidate)
    replayed = (
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
            "conflicts": [conflict_to_json(conflict) for conflict in found[:MAX_REPORTED_CHANGES]],
            "impact": replayed,
            "needs-second-person": _needs_two(call, old, candidate),
        }
    )


def handle_apply(call: ApiRequest) -> ApiResponse:
    """Put a policy in force, or let it wait."""
    said: dict[str, Any] = call.body
    candidate, by = compile_policy(said["sources"]), call.principal.name
    accept, because = [str(name) for name in said["accept"]], str(said["because"])
    old = call.decision_point.policy
    if _needs_two(call, old, candidate):
        return proposal_response(call.decision_point.propose_policy(candidate, accept, by, because))
    sequence = call.decision_point.apply(
        candidate,
        accept,
        by,
        because,
        expected_policy=old if call.access.approval.policy else ANY_POLICY,
    )
    return ApiResponse({"applied": True, "sequence": sequence, "policy": candidate.digest})


def _needs_two(call: ApiRequest, old: CompiledPolicy | None, new: CompiledPolicy) -> bool:
    return call.access.approval.policy and not only_tightens(old, new)


_OFFICER = frozenset({Role.OFFICER})
_READERS = frozenset({Role.OFFICER, Role.APPROVER, Role.AUDITOR})

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/policies:plan",
        "plan",
        "What a candidate would change; nothing is written.",
        handle_plan,
        _READERS,
        "Plan",
        _PLAN,
        problems=("invalid",),
    ),
    Endpoint(
        "POST",
        "/v1/policies:apply",
        "apply",
        "Put a policy in force.",
        handle_apply,
        _OFFICER,
        "Applied",
        _APPLY,
        problems=("invalid", "conflicting", "policy-changed"),
        may_need_approval=True,
    ),
)
