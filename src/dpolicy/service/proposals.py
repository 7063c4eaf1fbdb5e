"""What waits for a second person, over HTTP: looked at, approved, rejected."""

from __future__ import annotations

from typing import Any

from dpolicy.enforcement.state import Proposal
from dpolicy.errors import Refused
from dpolicy.ledger.events import PolicyProposed, ReleaseProposed, VoidProposed
from dpolicy.releases.decision import Decision
from dpolicy.service.endpoint import Answer, Call, Endpoint, Parameter
from dpolicy.service.principal import EVERY_ROLE, Role
from dpolicy.service.releases import BECAUSE


def listed(call: Call) -> Answer:
    """Proposals, the newest first."""
    own = call.principal.only_analyst and not call.access.local
    found = [
        proposal_json(proposal)
        for proposal in reversed(list(call.point.proposals.values()))
        if (proposal.open or call.query["open"] == "false")
        and (not own or proposal.by == call.principal.name)
    ]
    return Answer({"proposals": found[: call.query["limit"]]})


def proposal_json(proposal: Proposal) -> dict[str, Any]:
    """A proposal for programs."""
    answered = "approved" if proposal.approved else "rejected"
    return {
        "proposal": proposal.number,
        "kind": proposal.kind,
        "about": proposal.about,
        "by": proposal.by,
        "at": proposal.at,
        "status": "open" if proposal.open else answered,
    }


def show(call: Call) -> Answer:
    """A proposal with all that it proposes."""
    proposal = _found(call)
    if call.principal.only_analyst and proposal.by != call.principal.name:
        raise Refused("forbidden", "this is another person's proposal")
    event = call.point.event(proposal.number)
    said: dict[str, Any] = {}
    match event:
        case ReleaseProposed():
            said = {"body": event.body, "reserve": event.reserve}
        case VoidProposed():
            said = {"because": event.because}
        case PolicyProposed():
            sources = [{"name": name, "text": text} for name, text in event.sources]
            said = {"because": event.because, "sources": sources, "accepted": list(event.accepted)}
    return Answer({**proposal_json(proposal), **said})


def approve(call: Call) -> Answer:
    """Agree, and do what was proposed."""
    proposal = _answerable(call)
    done = call.point.approve(proposal.number, call.principal.name, call.body)
    decision = done.as_json() if isinstance(done, Decision) else None
    if isinstance(done, Decision):
        call.metrics.decision("allow" if done.allowed else "deny")
    sequence = done.sequence if isinstance(done, Decision) else done
    said = {"proposal": proposal.number, "status": "approved", "sequence": sequence}
    return Answer({**said, "decision": decision})


def reject(call: Call) -> Answer:
    """Do not agree."""
    proposal = _answerable(call)
    sequence = call.point.reject(proposal.number, call.principal.name, call.body)
    said = {"proposal": proposal.number, "status": "rejected", "sequence": sequence}
    return Answer({**said, "decision": None})


def _answerable(call: Call) -> Proposal:
    """A proposal that this role may answer: policies are for officers."""
    proposal = _found(call)
    if proposal.kind == "policy" and Role.OFFICER not in call.principal.roles:
        raise Refused("forbidden", "a policy is approved by an officer")
    return proposal


def _found(call: Call) -> Proposal:
    number = call.path["proposal"]
    whole = number.isascii() and number.isdigit() and len(number) < 17
    found = call.point.proposals.get(int(number)) if whole else None
    if found is None:
        raise Refused("not-found", f"there is no proposal {number[:20]}")
    return found


_LISTED = {
    "open": Parameter("Only what waits.", choices=("true", "false"), default="true"),
    "limit": Parameter("At most so many.", whole=True, least=1, most=10_000, default=1_000),
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
        listed,
        EVERY_ROLE,
        "Proposals",
        query=_LISTED,
    ),
    Endpoint(
        "POST",
        f"{_PATH}/approve",
        "approve",
        "Agree, and do what was proposed.",
        approve,
        _ANSWER,
        "Answered",
        BECAUSE,
        problems=(*_PROBLEMS, *_DOING),
    ),
    Endpoint(
        "POST",
        f"{_PATH}/reject",
        "reject",
        "Do not agree.",
        reject,
        _ANSWER,
        "Answered",
        BECAUSE,
        problems=_PROBLEMS,
    ),
    Endpoint(
        "GET",
        _PATH,
        "proposal",
        "All that a proposal proposes.",
        show,
        EVERY_ROLE,
        "Proposal",
        problems=("not-found",),
    ),
)
