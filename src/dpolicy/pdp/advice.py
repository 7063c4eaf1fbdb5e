"""Advice on a denial: complete counter-offers with unused ids. It is returned and not recorded.

The ledger records a denial with its counter-offers in outline. The advice is computed from the
state at the time of the answer, also for a repeated request, so that its offers are true now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpolicy.decisions.counter_offers import find_counter_offers
from dpolicy.decisions.offers import MAX_COMPLETE_OFFERS, Offer, complete_offers, to_json
from dpolicy.decisions.trials import Trials
from dpolicy.errors import OperationRejected
from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.pdp.release_ids import id_taken_error, is_id_used, suggest_id
from dpolicy.pdp.request_evaluation import active_policy
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release

#: `change` of the offer for a denied release that would be allowed now.
NEW_ID = "choose a new id"

#: Counter-offers as the ledger records them.
Outlines = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SubmittedOffer:
    """The changed release of an offer, as it was submitted, and the decision on it."""

    body: Body
    decision: Decision

    def as_json(self) -> dict[str, Any]:
        """Return the submitted release as a JSON object."""
        release: dict[str, Any] = to_json(self.body)
        return release


def add_advice(state: LedgerState, release: Release, decision: Decision) -> Decision:
    """Return a denial with complete counter-offers; an allowed decision stays as it is.

    The balances of the state must be updated.
    """
    if decision.allowed or state.enforced is None:
        return decision
    new_id = suggest_id(state, release.id)
    outlines = None if decision.replayed else decision.counter_offers
    offers = tuple(
        offer.as_json(release.body, new_id if number < MAX_COMPLETE_OFFERS else None)
        for number, offer in enumerate(find_offers(state, release, outlines))
    )
    return replace(decision, counter_offers=offers)


def find_offers(
    state: LedgerState, release: Release, outlines: Outlines | None = None
) -> tuple[Offer, ...]:
    """Return the offers for a release that the active policy denies now, least change first.

    `outlines` are its counter-offers on this state, if they are known. A release that would be
    allowed now has one offer: the same release under a new id.
    """
    trials = Trials(active_policy(state), state.balances, state.today)
    trial = trials.decide(release.body)
    if trial is None:
        return ()
    if trial.verdict.allowed:
        return (Offer({"change": NEW_ID}, release.body),)
    if trial.verdict.predicate_errors or trial.verdict.uncovered:
        return ()
    if outlines is None:
        outlines = find_counter_offers(
            trials.enforced, state.balances, state.today, release.body, trial.verdict
        )
    return complete_offers(trials, release.body, outlines)


def choose_offer(
    state: LedgerState, release: Release, number: int, new_id: str | None
) -> dict[str, Any]:
    """Return the body of an offer, counted from 1, under `new_id` or an unused id.

    Raise `OperationRejected` if there is no such offer, or if the id is used.
    """
    offers = find_offers(state, release)
    if not 1 <= number <= len(offers):
        raise OperationRejected(
            f"`{release.id}` has {len(offers)} counter-offers now, and no number {number}; "
            "help: look at the offers with `dpolicy submit --dry-run`",
        )
    offer = offers[number - 1]
    if offer.body is None:
        raise OperationRejected(
            f"offer {number} of `{release.id}` ({offer.outline['change']}) needs your own change; "
            "help: edit the release and submit it under a new id",
        )
    if offer.outline["change"] == NEW_ID and release.id not in state.entries:
        raise OperationRejected(
            f"`{release.id}` is allowed as it is; help: submit it without `--offer`"
        )
    if new_id is not None and is_id_used(state, new_id):
        raise id_taken_error(state, new_id)
    return {
        **offer.body,
        "release": new_id or suggest_id(state, release.id),
    }
