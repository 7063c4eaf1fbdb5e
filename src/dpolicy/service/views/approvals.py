"""What waits for a second person → what it would come to now; and what was answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpolicy.enforcement.decision_point import DecisionPoint
from dpolicy.enforcement.judgement import judge
from dpolicy.enforcement.state import Proposal
from dpolicy.errors import DPolicyError
from dpolicy.ledger.events import PolicyProposed, ReleaseProposed, VoidProposed
from dpolicy.releases.body import release_of
from dpolicy.releases.decision import Decision
from dpolicy.service.sight import decision_seen
from dpolicy.service.views.paging import Paging, paging
from dpolicy.service.views.policy import Candidate, candidate

#: So many that were answered are still shown.
MOST_ANSWERED = 20


@dataclass(frozen=True, slots=True)
class Waiting:
    """A proposal that is open: what would be decided now, or what a policy would change."""

    proposal: Proposal
    because: str
    decision: Decision | None = None
    candidate: Candidate | None = None
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
class Approvals:
    """A page of what waits, oldest first, and what was answered, newest first."""

    waiting: tuple[Waiting, ...]
    paging: Paging
    answered: tuple[Proposal, ...]

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "waiting": [one.as_json() for one in self.waiting],
            "answered": [_plain(proposal) for proposal in self.answered],
            **self.paging.as_json(),
        }


def approvals(point: DecisionPoint, page: int = 1, own: str | None = None) -> Approvals:
    """What was proposed; only by one person, if `own` names somebody.

    To judge is dear, so that only the proposals of the page are judged.
    """
    proposals = {n: p for n, p in point.proposals.items() if own in (None, p.by)}
    open_ = [p for _, p in sorted(proposals.items()) if p.open]
    answered = [p for _, p in sorted(proposals.items(), reverse=True) if not p.open]
    shown = paging(page, len(open_))
    waiting = tuple(_waiting(point, proposal, own) for proposal in shown.of(open_))
    return Approvals(waiting, shown, tuple(answered[:MOST_ANSWERED]))


def _waiting(point: DecisionPoint, proposal: Proposal, own: str | None) -> Waiting:
    event = point.event(proposal.number)
    match event:
        case ReleaseProposed():
            return _release(point, proposal, event, own)
        case PolicyProposed():
            return Waiting(proposal, event.because, candidate=candidate(point, event.sources))
        case VoidProposed():
            return Waiting(proposal, event.because)
    return Waiting(proposal, "")


def _release(
    point: DecisionPoint, proposal: Proposal, event: ReleaseProposed, own: str | None
) -> Waiting:
    """What the rules say of a release now; that it no longer makes sense is a problem to show."""
    try:
        release = release_of(event.body)
        decision = point.consult(lambda state: judge(state, release))
        return Waiting(proposal, "", decision=decision_seen(point, decision, own))
    except DPolicyError as error:
        return Waiting(proposal, "", problem=str(error))


def _plain(proposal: Proposal) -> dict[str, Any]:
    return {
        "number": proposal.number,
        "kind": proposal.kind,
        "about": proposal.about,
        "by": proposal.by,
        "at": proposal.at,
        "open": proposal.open,
        "approved": proposal.approved,
    }
