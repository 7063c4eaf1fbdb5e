"""Proposals: requests that wait for the answer of an approver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dpolicy.errors import LedgerDamaged


class Proposal(NamedTuple):
    """A proposal, open or answered; `subject` is the id of a release or the digest of a policy.

    It permits nothing, so it is false, like a denial: `propose` returns a decision or a proposal.
    """

    number: int
    kind: str
    subject: str
    by: str
    at: str
    open: bool = True
    approved: bool = False

    def __bool__(self) -> bool:
        return False


def proposal_from_event(kind: str, event_fields: Mapping[str, Any], number: int) -> Proposal:
    """Return the proposal that an event makes."""
    subject = event_fields["digest"] if kind == "policy" else event_fields["release"]
    return Proposal(number, kind, subject, event_fields["by"], event_fields["at"])


class ProposalTable(Mapping[int, Proposal]):
    """All proposals by record number. Mutable; owned by a `LedgerState`."""

    def __init__(self, proposals: Iterable[Proposal] = ()) -> None:
        self._proposals: dict[int, Proposal] = {}
        self._newest: dict[tuple[str, str], int] = {}
        for proposal in proposals:
            self.add(proposal)

    def __getitem__(self, number: int) -> Proposal:
        return self._proposals[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._proposals)

    def __len__(self) -> int:
        return len(self._proposals)

    def add(self, proposal: Proposal) -> None:
        """Add a proposal; it is the newest one for its subject."""
        self._proposals[proposal.number] = proposal
        self._newest[proposal.kind, proposal.subject] = proposal.number

    def answer(self, number: int, approved: bool) -> None:
        """Close a proposal. Raise `LedgerDamaged` if there is none."""
        if number not in self._proposals:
            raise LedgerDamaged(f"record answers unknown proposal {number}")
        self._proposals[number] = self._proposals[number]._replace(open=False, approved=approved)

    def newest(self, kind: str, subject: str) -> Proposal | None:
        """Return the newest proposal of a kind for a release or a policy."""
        return self._proposals.get(self._newest.get((kind, subject), 0))

    def copy(self) -> ProposalTable:
        """Return an independent copy."""
        other = ProposalTable()
        other._proposals, other._newest = dict(self._proposals), dict(self._newest)
        return other
