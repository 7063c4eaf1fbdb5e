"""Answers to denied requests: top spenders, causes and counter-offers for the author.

The search for offers decides many changed releases. So it runs after the commit, on a copy of the
balances, and the ledger does not record its results: they are true for the balances at the time of
the answer. A repeated request gets the result of an earlier search if no charge changed since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dpolicy.balances.memo import Memo
from dpolicy.decisions.counter_offers import has_many_boxes
from dpolicy.decisions.denial_advice.advice import NEW_ID, Advice, find_advice, find_offers
from dpolicy.decisions.denial_advice.causes import ReasonKey
from dpolicy.decisions.denial_advice.offers import Offer
from dpolicy.decisions.denial_advice.trials import DecisionTrials
from dpolicy.decisions.reasons import reasons_for
from dpolicy.errors import OperationRejected
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.pdp.journal.journal import Journal
from dpolicy.pdp.request_evaluation import (
    active_policy,
    id_taken_error,
    is_id_used,
    suggest_id,
)
from dpolicy.pdp.rule_status import top_spenders
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.release_archive import DENIED
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision, Reason
from dpolicy.releases.release import Release

#: Largest number of mechanisms for which `submit` searches counter-offers. For more mechanisms the
#: search is expensive, and only `check` runs it.
MAX_SUBMITTED_MECHANISMS = 16

#: Number of results that are kept.
MAX_KEPT_RESULTS = 256


@dataclass(frozen=True, slots=True)
class DenialAnswers:
    """Adds advice to denials. It reads the ledger without the lock of the writers."""

    journal: Journal
    _kept: Memo[tuple[int, int, int, bytes], Advice] = field(
        default_factory=lambda: Memo(MAX_KEPT_RESULTS)
    )

    def advise_submission(self, release: Release, decision: Decision) -> Decision:
        """Return a denial with advice, and any other decision as it is."""
        if decision.allowed:
            return decision
        is_expensive = len(release.body["mechanisms"]) > MAX_SUBMITTED_MECHANISMS
        return self._add(release, decision, with_offers=not is_expensive)

    def advise_check(self, release: Release, decision: Decision) -> Decision:
        """Return a denial with advice, also for a release with many mechanisms."""
        return decision if decision.allowed else self._add(release, decision, with_offers=True)

    def _add(self, release: Release, decision: Decision, *, with_offers: bool) -> Decision:
        with self.journal.read_with_balances() as state:
            if state.enforced is None:
                return decision
            new_id = suggest_id(state, release.id)
            body = release.body
            decision = _add_spenders(state, body, decision)
            if has_many_boxes(body) or not with_offers:
                return decision
            key = (state.policy_record, state.charged_sequence, state.today, _encode_content(body))
            trials = copy_trials(state)
        advice = self._kept.get_or_compute(key, lambda _: find_advice(trials, body))
        return advice.add_to(decision, body, new_id)

    def choose_offer(self, release: Release, number: int, new_id: str | None) -> dict[str, Any]:
        """Return the body of an offer, counted from 1, under `new_id` or an unused id.

        Raise `OperationRejected` if there is no such offer, or if the id is used.
        """
        with self.journal.read_with_balances() as state:
            if new_id is not None and is_id_used(state, new_id):
                raise id_taken_error(state, new_id)
            entry = state.entries.get(release.id)
            if entry is not None and entry.status != DENIED:
                raise OperationRejected(
                    f"release `{release.id}` was {entry.status}; "
                    "help: submit a denied release with --offer"
                )
            new_id = new_id or suggest_id(state, release.id)
            trials = copy_trials(state)
        is_searched = not has_many_boxes(release.body)
        offers = find_offers(trials, release.body) if is_searched else ()
        body = _pick_offer(offers, release.id, number, is_new=entry is None)
        return {**body, "release": new_id}


def copy_trials(state: LedgerState) -> DecisionTrials:
    """Return trials on a copy of the balances, which other threads do not change."""
    return DecisionTrials(active_policy(state), state.balances.copy(), state.today)


def _pick_offer(offers: Sequence[Offer], release: str, number: int, *, is_new: bool) -> Body:
    """Return the body of an offer, counted from 1. Raise `OperationRejected`."""
    if not 1 <= number <= len(offers):
        count = "1 counter-offer" if len(offers) == 1 else f"{len(offers)} counter-offers"
        raise OperationRejected(
            f"`{release}` has {count} now, and no number {number}; "
            "help: look at the offers with `dpolicy submit --dry-run`",
        )
    offer = offers[number - 1]
    if offer.body is None:
        raise OperationRejected(
            f"offer {number} of `{release}` ({offer.outline['change']}) needs your own change; "
            "help: edit the release and submit it under a new id",
        )
    if offer.outline["change"] == NEW_ID and is_new:
        raise OperationRejected(
            f"`{release}` is allowed as it is; help: submit it without `--offer`"
        )
    return offer.body


def _encode_content(body: Body) -> bytes:
    """Return what a release states, without its id."""
    return encode_canonical({key: value for key, value in body.items() if key != "release"})


def _add_spenders(state: LedgerState, body: Body, decision: Decision) -> Decision:
    """Return a denial with the top spenders of the rules that are exceeded now."""
    trial = DecisionTrials(active_policy(state), state.balances, state.today).decide(body)
    if trial is None or trial.verdict.allowed:
        return decision
    exceeded = reasons_for(trial.verdict, partial(top_spenders, state))
    spenders = {_key(reason): reason.spenders for reason in exceeded}
    reasons = tuple(
        replace(reason, spenders=reason.spenders or spenders.get(_key(reason), ()))
        for reason in decision.reasons
    )
    return replace(decision, reasons=reasons)


def _key(reason: Reason) -> ReasonKey:
    return reason.rule, reason.unit, reason.each_release
