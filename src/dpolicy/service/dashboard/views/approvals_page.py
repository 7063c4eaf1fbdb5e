"""What waits for a second person → what it would come to now; and what was answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpolicy.errors import DPolicyError
from dpolicy.ledger.events import PolicyProposed, ReleaseProposed, VoidProposed
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.ledger_state import Proposal
from dpolicy.pdp.request_evaluation import evaluate_release
from dpolicy.releases.body import release_from_body
from dpolicy.releases.decision import Decision
from dpolicy.service.auth.redaction import redact_decision
from dpolicy.service.dashboard.pagination import Pagination, paginate
from dpolicy.service.dashboard.views.policy_page import CandidatePolicy, preview_policy

#: So many that were answered are still shown.
MAX_ANSWERED_PROPOSALS = 20


@dataclass(frozen=True, slots=True)
class PendingProposal:
    """A proposal that is open: what would be decided now, or what a policy would change."""

    proposal: Proposal
    because: str
    decision: Decision | None = None
    candidate: CandidatePolicy | None = None
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            **_plain(self.proposal),
            "because": self.because,
            "decision-now": self.decision.as_json() if self.decision else None,
            "candidate": self.candidate.as_json() if self.candidate else None,
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class ApprovalsPage:
    """A page of what waits, oldest first, and what was answered, newest first."""

    waiting: tuple[PendingProposal, ...]
    paging: Pagination
    answered: tuple[Proposal, ...]

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "waiting": [one.as_json() for one in self.waiting],
            "answered": [_plain(proposal) for proposal in self.answered],
            **self.paging.as_json(),
        }


def approvals_page(point: DecisionPoint, page: int = 1, own: str | None = None) -> ApprovalsPage:
    """What was proposed; only by one person, if `own` names somebody.

    To judge is dear, so that only the proposals of the page are judged.
    """
    proposals = {n: p for n, p in point.proposals.items() if own in (None, p.by)}
    open_ = [p for _, p in sorted(proposals.items()) if p.open]
    answered = [p for _, p in sorted(proposals.items(), reverse=True) if not p.open]
    shown = paginate(page, len(open_))
    waiting = tuple(_waiting(point, proposal, own) for proposal in shown.items_on_page(open_))
    return ApprovalsPage(waiting, shown, tuple(answered[:MAX_ANSWERED_PROPOSALS]))


def _waiting(point: DecisionPoint, proposal: Proposal, own: str | None) -> PendingProposal:
    event = point.event(proposal.number)
    match event:
        case ReleaseProposed():
            return _release(point, proposal, event, own)
        case PolicyProposed():
            return PendingProposal(
                proposal, event.because, candidate=preview_policy(point, event.sources)
            )
        case VoidProposed():
            return PendingProposal(proposal, event.because)
    return PendingProposal(proposal, "")


def _release(
    point: DecisionPoint, proposal: Proposal, event: ReleaseProposed, own: str | None
) -> PendingProposal:
    """What the rules say of a release now; that it no longer makes sense is a problem to show."""
    try:
        release = release_from_body(event.body)
        decision = point.read_state(lambda state: evaluate_release(state, release))
        return PendingProposal(proposal, "", decision=redact_decision(point, decision, own))
    except DPolicyError as error:
        return PendingProposal(proposal, "", problem=str(error))


def _plain(proposal: Proposal) -> dict[str, Any]:
    return {
        "number": proposal.number,
        "kind": proposal.kind,
        "about": proposal.subject,
        "by": proposal.by,
        "at": proposal.at,
        "open": proposal.open,
        "approved": proposal.approved,
    }
