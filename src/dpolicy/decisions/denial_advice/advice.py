"""Advice on a denial: what the author can change. It is returned to the author and not recorded.

The ledger records a denial with its counter-offers in outline. The advice is computed from the
balances at the time of the answer, also for a repeated request, so that its offers are true now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpolicy.decisions.counter_offers import find_counter_offers
from dpolicy.decisions.denial_advice.causes import find_causes
from dpolicy.decisions.denial_advice.offers import (
    MAX_COMPLETE_OFFERS,
    Offer,
    complete_offers,
    to_json,
)
from dpolicy.decisions.denial_advice.trials import DecisionTrial, DecisionTrials
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.text.summaries import html_line, one_line

#: `change` of the offer for a denied release that would be allowed now.
NEW_ID = "choose a new id"

#: Counter-offers as the ledger records them.
Outlines = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SubmittedOffer:
    """The changed release of an offer, as it was submitted, and the decision on it."""

    body: Body
    decision: Decision

    def __bool__(self) -> bool:
        return self.decision.allowed

    def __repr__(self) -> str:
        decision = self.decision
        word = "allowed" if decision.allowed else "denied"
        return one_line(self, f"{decision.release} {word}", f"record {decision.sequence}")

    def _repr_html_(self) -> str:
        return html_line(repr(self))

    def as_json(self) -> dict[str, Any]:
        """Return the decision as a JSON object, with the release under `submitted`."""
        return {**self.decision.as_json(), "submitted": to_json(self.body)}


def advise(trials: DecisionTrials, body: Body, decision: Decision, new_id: str) -> Decision:
    """Return a denial with the causes of its reasons and complete offers under `new_id`."""
    trial = trials.decide(body)
    if trial is None:
        return replace(decision, counter_offers=())
    outlines = None if decision.replayed else decision.counter_offers
    complete = tuple(
        offer.as_json(body, new_id if number < MAX_COMPLETE_OFFERS else None)
        for number, offer in enumerate(_find_offers(trials, trial, outlines))
    )
    causes = find_causes(trials, body, trial.verdict)
    reasons = tuple(
        replace(reason, cause=causes.get((reason.rule, reason.unit, reason.each_release), ""))
        for reason in decision.reasons
    )
    return replace(decision, reasons=reasons, counter_offers=complete)


def find_offers(trials: DecisionTrials, body: Body) -> tuple[Offer, ...]:
    """Return the offers for a release that the policy denies now, least change first.

    A release that would be allowed now has one offer: the same release under a new id.
    """
    trial = trials.decide(body)
    return () if trial is None else _find_offers(trials, trial, None)


def _find_offers(
    trials: DecisionTrials, trial: DecisionTrial, outlines: Outlines | None
) -> tuple[Offer, ...]:
    """Return the offers; `outlines` are the counter-offers on these balances, if known."""
    body, verdict = trial.body, trial.verdict
    if verdict.allowed:
        return (Offer({"change": NEW_ID}, body),)
    if verdict.predicate_errors or verdict.uncovered:
        return ()
    if outlines is None:
        outlines = find_counter_offers(
            trials.enforced, trials.balances, trials.today, body, verdict
        )
    return complete_offers(trials, body, outlines)
