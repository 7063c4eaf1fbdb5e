"""Advice on a denial: what the author can change. It is returned to the author and not recorded.

The advice is computed from the balances at the time of the answer, also for a repeated request, so
that its offers are true now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpolicy.decisions.counter_offers import find_counter_offers
from dpolicy.decisions.denial_advice.causes import ReasonKey, find_causes
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


@dataclass(frozen=True, slots=True)
class Advice:
    """Causes of the exceeded rules, by key of their reasons, and offers, least change first."""

    causes: Mapping[ReasonKey, str]
    offers: tuple[Offer, ...]

    def add_to(self, decision: Decision, body: Body, new_id: str) -> Decision:
        """Return a denial with the causes of its reasons and complete offers under `new_id`."""
        complete = tuple(
            offer.as_json(body, new_id if number < MAX_COMPLETE_OFFERS else None)
            for number, offer in enumerate(self.offers)
        )
        reasons = tuple(
            replace(
                reason, cause=self.causes.get((reason.rule, reason.unit, reason.each_release), "")
            )
            for reason in decision.reasons
        )
        return replace(decision, reasons=reasons, counter_offers=complete)


def find_advice(trials: DecisionTrials, body: Body) -> Advice:
    """Return the advice on a release that was denied."""
    trial = trials.decide(body)
    if trial is None:
        return Advice({}, ())
    offers = _find_offers(trials, trial)
    return Advice(find_causes(trials, body, trial.verdict), offers)


def find_offers(trials: DecisionTrials, body: Body) -> tuple[Offer, ...]:
    """Return the offers for a release that the policy denies now, least change first.

    A release that would be allowed now has one offer: the same release under a new id.
    """
    trial = trials.decide(body)
    return () if trial is None else _find_offers(trials, trial)


def _find_offers(trials: DecisionTrials, trial: DecisionTrial) -> tuple[Offer, ...]:
    body, verdict = trial.body, trial.verdict
    if verdict.allowed:
        return (Offer({"change": NEW_ID}, body),)
    if verdict.predicate_errors or verdict.uncovered:
        return ()
    outlines = find_counter_offers(trials.enforced, trials.balances, trials.today, body, verdict)
    return complete_offers(trials, body, outlines)
