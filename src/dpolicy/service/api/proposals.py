"""What waits for a second person, over HTTP: looked at, approved, rejected."""

from __future__ import annotations

from typing import Any

from dpolicy.errors import RequestRefused
from dpolicy.ledger.events import PolicyProposed, ReleaseProposed, VoidProposed
from dpolicy.pdp.ledger_state import Proposal
from dpolicy.releases.decision import Decision
from dpolicy.service.api.releases import BECAUSE_FIELD
from dpolicy.service.auth.principal import EVERY_ROLE, Role
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint, QueryParameter


def handle_list_proposals(call: ApiRequest) -> ApiResponse:
    """Proposals, the newest first."""
    own = call.principal.only_analyst and not call.access.local
    found = [
        proposal_json(proposal)
        for proposal in reversed(list(call.decision_point.proposals.values()))
        if (proposal.open or call.query["open"] == "false")
        and (not own or proposal.by == call.principal.name)
    ]
    return ApiResponse({"proposals": found[: call.query["limit"]]})


def proposal_json(proposal: Proposal) -> dict[str, Any]:
    """A proposal for programs."""
    answered = "approved" if proposal.approved else "rejected"
    return {
        "proposal": proposal.number,
        "kind": proposal.kind,
        "about": proposal.subject,
        "by": proposal.by,
        "at": proposal.at,
        "status": "open" if proposal.open else answered,
    }


def handle_show_proposal(call: ApiRequest) -> ApiResponse:
    """A proposal with all that it proposes."""
    proposal = _found(call)
    if call.principal.only_analyst and proposal.by != call.principal.name:
        raise RequestRefused("forbidden", "this is another person's proposal")
    event = call.decision_point.event(proposal.number)
    said: dict[str, Any] = {}
    match event:
        case ReleaseProposed():
            said = {"body": event.body, "reserve": event.reserve}
        case VoidProposed():
            said = {"because": event.because}
        case PolicyProposed():
            sources = [{"name": name, "text": text} for name, text in event.sources]
            said = {"because": event.because, "sources": sources, "accepted": list(event.accepted)}
    return ApiResponse({**proposal_json(proposal), **said})


def handle_approve(call: ApiRequest) -> ApiResponse:
    """Agree, and do what was proposed."""
    proposal = _answerable(call)
    done = call.decision_point.approve(proposal.number, call.principal.name, call.body)
    decision = done.as_json() if isinstance(done, Decision) else None
    if isinstance(done, Decision):
        call.metrics.decision("allow" if done.allowed else "deny")
    sequence = done.sequence if isinstance(done, Decision) else done
    said = {"proposal": proposal.number, "status": "approved", "sequence": sequence}
    return ApiResponse({**said, "decision": decision})


def handle_reject(call: ApiRequest) -> ApiResponse:
    """Do not agree."""
    proposal = _answerable(call)
    sequence = call.decision_point.reject(proposal.number, call.principal.name, call.body)
    said = {"proposal": proposal.number, "status": "rejected", "sequence": sequence}
    return ApiResponse({**said, "decision": None})


def _answerable(call: ApiRequest) -> Proposal:
    """A proposal that this role may answer: policies are for officers."""
    proposal = _found(call)
    if proposal.kind == "policy" and Role.OFFICER not in call.principal.roles:
        raise RequestRefused("forbidden", "a policy is approved by an officer")
    return proposal


def _found(call: ApiRequest) -> Proposal:
    number = call.path["proposal"]
    whole = number.isascii() and number.isdigit() and len(number) < 17
    found = call.decision_point.proposals.get(int(number)) if whole else None
    if found is None:
        raise RequestRefused("not-found", f"there is no proposal {number[:20]}")
    return found


_LISTED = {
    "open": QueryParameter("Only what waits.", choices=("true", "false"), default="true"),
    "limit": QueryParameter("At most so many.", whole=True, least=1, most=10_000, default=1_000),
}
_ANSWER = frozenset({Role.APPROVER, Role.OFFICER})
_PATH = "/v1/proposals/{proposal}"
_PROBLEMS = ("invalid", "not-found", "already-answered", "second-person")
_DOING = ("not-reserved", "conflicting", "release-rejected", "id-taken", "no-policy")

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/proposals",
        "proposals",
        "What waits for a second person.",
        handle_list_proposals,
        EVERY_ROLE,
        "Proposals",
        query=_LISTED,
    ),
    Endpoint(
        "POST",
        f"{_PATH}/approve",
        "approve",
        "Agree, and do what was proposed.",
        handle_approve,
        _ANSWER,
        "Answered",
        BECAUSE_FIELD,
        problems=(*_PROBLEMS, *_DOING),
    ),
    Endpoint(
        "POST",
        f"{_PATH}/reject",
        "reject",
        "Do not agree.",
        handle_reject,
        _ANSWER,
        "Answered",
        BECAUSE_FIELD,
        problems=_PROBLEMS,
    ),
    Endpoint(
        "GET",
        _PATH,
        "proposal",
        "All that a proposal proposes.",
        handle_show_proposal,
        EVERY_ROLE,
        "Proposal",
        problems=("not-found",),
    ),
)
