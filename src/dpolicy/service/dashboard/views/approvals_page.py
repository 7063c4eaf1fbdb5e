"""Approvals page: open proposals with their effect at the current state, and answered ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpolicy.errors import DPolicyError
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import PolicyProposed, RelabellingProposed, ReleaseProposed, VoidProposed
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.request_evaluation import evaluate_release
from dpolicy.pdp.state.proposal import Proposal
from dpolicy.releases.body import release_from_body
from dpolicy.releases.decision import Decision
from dpolicy.service.auth.redaction import redact_decision
from dpolicy.service.dashboard.pagination import Pagination, paginate
from dpolicy.service.dashboard.views.policy_page import CandidatePolicy, preview_policy

#: Number of answered proposals on the page.
MAX_ANSWERED_PROPOSALS = 20


@dataclass(frozen=True, slots=True)
class PendingProposal:
    """Open proposal with its effect at the current state.

    A release has a `decision`, or a `problem` if it can no longer be evaluated. A policy has a
    `candidate`. A void and a relabelling have neither.
    """

    proposal: Proposal
    because: str
    decision: Decision | None = None
    candidate: CandidatePolicy | None = None
    problem: str = ""
    correction: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **_proposal_json(self.proposal),
            "because": self.because,
            "current-decision": None if self.decision is None else self.decision.as_json(),
            "candidate": self.candidate.as_json() if self.candidate else None,
            "problem": self.problem,
            "correction": self.correction,
        }


@dataclass(frozen=True, slots=True)
class ApprovalsPage:
    """One page of open proposals, oldest first, and the last answered ones, newest first."""

    pending: tuple[PendingProposal, ...]
    pagination: Pagination
    answered: tuple[Proposal, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "pending": [proposal.as_json() for proposal in self.pending],
            "answered": [_proposal_json(proposal) for proposal in self.answered],
            **self.pagination.as_json(),
        }


def build_approvals_page(
    decision_point: DecisionPoint, page: int = 1, visible_owner: str | None = None
) -> ApprovalsPage:
    """Build the approvals page; with `visible_owner`, only from proposals of that person.

    Only the proposals on the requested page are evaluated, because evaluation is expensive.
    """
    proposals = [
        proposal
        for _, proposal in sorted(decision_point.proposals.items())
        if visible_owner in (None, proposal.by)
    ]
    open_proposals = [proposal for proposal in proposals if proposal.open]
    answered = [proposal for proposal in reversed(proposals) if not proposal.open]
    pagination = paginate(page, len(open_proposals))
    pending = tuple(
        _evaluate_proposal(decision_point, proposal, visible_owner)
        for proposal in pagination.items_on_page(open_proposals)
    )
    return ApprovalsPage(pending, pagination, tuple(answered[:MAX_ANSWERED_PROPOSALS]))


def _evaluate_proposal(
    decision_point: DecisionPoint, proposal: Proposal, visible_owner: str | None
) -> PendingProposal:
    event = decision_point.event(proposal.number)
    match event:
        case ReleaseProposed():
            return _evaluate_release(decision_point, proposal, event, visible_owner)
        case PolicyProposed():
            return PendingProposal(
                proposal, event.because, candidate=preview_policy(decision_point, event.sources)
            )
        case VoidProposed():
            return PendingProposal(proposal, event.because)
        case RelabellingProposed():
            correction = encode_canonical(event.body).decode("utf-8")
            return PendingProposal(proposal, event.because, correction=correction)
    return PendingProposal(proposal, "")


def _evaluate_release(
    decision_point: DecisionPoint,
    proposal: Proposal,
    event: ReleaseProposed,
    visible_owner: str | None,
) -> PendingProposal:
    """Evaluate a proposed release; an error becomes the `problem` of the proposal."""
    try:
        release = release_from_body(event.body)
        decision = decision_point.read_state(lambda state: evaluate_release(state, release))
        decision = decision_point.add_advice(release, decision)
        redacted = redact_decision(decision_point, decision, visible_owner)
        return PendingProposal(proposal, "", decision=redacted)
    except DPolicyError as error:
        return PendingProposal(proposal, "", problem=str(error))


def _proposal_json(proposal: Proposal) -> dict[str, Any]:
    return {
        "number": proposal.number,
        "kind": proposal.kind,
        "about": proposal.subject,
        "by": proposal.by,
        "at": proposal.at,
        "open": proposal.open,
        "approved": proposal.approved,
    }
