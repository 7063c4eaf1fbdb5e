"""Endpoints for proposals: list, show, approve, reject."""

from __future__ import annotations

from typing import Any

from dpolicy.errors import RequestRefused
from dpolicy.ledger.events import PolicyProposed, RelabellingProposed, ReleaseProposed, VoidProposed
from dpolicy.pdp.state.proposal import Proposal
from dpolicy.releases.decision import Decision
from dpolicy.service.api.releases import BECAUSE_BODY
from dpolicy.service.auth.principal import EVERY_ROLE, Role
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint, QueryParameter


def handle_list_proposals(call: ApiRequest) -> ApiResponse:
    """Return proposals, newest first."""
    own_only = call.principal.only_analyst and not call.access.local
    matching = [
        proposal_json(proposal)
        for proposal in reversed(list(call.decision_point.proposals.values()))
        if (proposal.open or call.query["open"] == "false")
        and (not own_only or proposal.by == call.principal.name)
    ]
    return ApiResponse({"proposals": matching[: call.query["limit"]]})


def proposal_json(proposal: Proposal) -> dict[str, Any]:
    """Return a proposal as JSON, without the proposed release, void or policy."""
    answer = "approved" if proposal.approved else "rejected"
    return {
        "proposal": proposal.number,
        "kind": proposal.kind,
        "about": proposal.subject,
        "by": proposal.by,
        "at": proposal.at,
        "status": "open" if proposal.open else answer,
    }


def handle_show_proposal(call: ApiRequest) -> ApiResponse:
    """Return a proposal with the proposed release, void or policy."""
    proposal = _find_proposal(call)
    if call.principal.only_analyst and proposal.by != call.principal.name:
        raise RequestRefused("forbidden", "the proposal belongs to another person")
    event = call.decision_point.event(proposal.number)
    content: dict[str, Any] = {}
    match event:
        case ReleaseProposed():
            content = {"body": event.body, "reserve": event.reserve}
        case VoidProposed():
            content = {"because": event.because}
        case RelabellingProposed():
            content = {"because": event.because, "body": event.body}
        case PolicyProposed():
            sources = [{"name": name, "text": text} for name, text in event.sources]
            accepted = list(event.accepted)
            content = {"because": event.because, "sources": sources, "accepted": accepted}
    return ApiResponse({**proposal_json(proposal), **content})


def handle_approve(call: ApiRequest) -> ApiResponse:
    """Approve a proposal and execute it."""
    proposal = _find_answerable_proposal(call)
    result = call.decision_point.approve(proposal.number, call.principal.name, call.body)
    answer: dict[str, Any] = {"proposal": proposal.number, "status": "approved"}
    if not isinstance(result, Decision):
        return ApiResponse({**answer, "sequence": result, "decision": None})
    call.metrics.decision("allow" if result.allowed else "deny")
    return ApiResponse({**answer, "sequence": result.sequence, "decision": result.as_json()})


def handle_reject(call: ApiRequest) -> ApiResponse:
    """Reject a proposal."""
    proposal = _find_answerable_proposal(call)
    sequence = call.decision_point.reject(proposal.number, call.principal.name, call.body)
    answer = {"proposal": proposal.number, "status": "rejected", "sequence": sequence}
    return ApiResponse({**answer, "decision": None})


def _find_answerable_proposal(call: ApiRequest) -> Proposal:
    """Return the proposal in the path. Raise `RequestRefused` if the caller may not answer it."""
    proposal = _find_proposal(call)
    if proposal.kind == "policy" and Role.OFFICER not in call.principal.roles:
        raise RequestRefused("forbidden", "only an officer may answer the proposal of a policy")
    return proposal


def _find_proposal(call: ApiRequest) -> Proposal:
    number = call.path["proposal"]
    is_number = number.isascii() and number.isdigit() and len(number) < 17
    proposal = call.decision_point.proposals.get(int(number)) if is_number else None
    if proposal is None:
        raise RequestRefused("not-found", f"there is no proposal {number[:20]}")
    return proposal


_LIST_PARAMETERS = {
    "open": QueryParameter(
        "Whether to list only open proposals.", choices=("true", "false"), default="true"
    ),
    "limit": QueryParameter(
        "Maximum number of proposals.", integer=True, minimum=1, maximum=10_000, default=1_000
    ),
}
_ANSWERERS = frozenset({Role.APPROVER, Role.OFFICER})
_PATH = "/v1/proposals/{proposal}"
_PROBLEMS = ("invalid", "not-found", "already-answered", "second-person")
_EXECUTION_PROBLEMS = ("not-reserved", "conflicting", "release-rejected", "id-taken", "no-policy")

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/proposals",
        "proposals",
        "List proposals, newest first.",
        handle_list_proposals,
        EVERY_ROLE,
        "Proposals",
        query=_LIST_PARAMETERS,
    ),
    Endpoint(
        "POST",
        f"{_PATH}/approve",
        "approve",
        "Approve a proposal and execute it.",
        handle_approve,
        _ANSWERERS,
        "AnsweredProposal",
        BECAUSE_BODY,
        problems=(*_PROBLEMS, *_EXECUTION_PROBLEMS),
    ),
    Endpoint(
        "POST",
        f"{_PATH}/reject",
        "reject",
        "Reject a proposal.",
        handle_reject,
        _ANSWERERS,
        "AnsweredProposal",
        BECAUSE_BODY,
        problems=_PROBLEMS,
    ),
    Endpoint(
        "GET",
        _PATH,
        "proposal",
        "Proposal with the proposed release, void or policy.",
        handle_show_proposal,
        EVERY_ROLE,
        "Proposal",
        problems=("not-found",),
    ),
)
