"""Evaluate a release request against the ledger state; pure.

A repeated id returns the recorded decision. Committing or relabelling a release never lowers its
charge below the cost of the mechanisms that were run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.decisions.completion import Reading
from dpolicy.decisions.counter_offers import find_counter_offers
from dpolicy.decisions.decide import (
    Verdict,
    charges_at_most,
    charges_by_region,
    decide,
    match_mechanisms,
)
from dpolicy.decisions.reasons import reasons_for
from dpolicy.decisions.resolution import ResolvedMechanism, resolve_or_reject
from dpolicy.errors import (
    InvalidValue,
    InvariantBroken,
    OperationRejected,
    ReleaseRejected,
)
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import Event, ReleaseDecided, ReleaseImported
from dpolicy.pdp.ledger_state import RESERVED, VOIDED, LedgerState, ReleaseEntry
from dpolicy.pdp.rule_status import top_spenders
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.releases.release_parser import release_from_plain, snapshot_release


def parse_request(release: Release | Body) -> Release:
    """Return a release that can be decided. Raise `PolicyRejected` with all its errors.

    A release that `release_parser` made is copied, not parsed again. A mapping, or a release that
    was built by hand (`Release.is_parsed`), is parsed as strictly as a file.
    """
    if isinstance(release, Release):
        return snapshot_release(release)
    return release_from_plain(release)


def evaluate_release(
    state: LedgerState, release: Release, reading: Reading = Reading.STRICT
) -> Decision:
    """Return the decision for a new release, with reasons and counter-offers; record nothing.

    The balances of the state must be updated.
    """
    mechanisms = resolve_or_reject(release, active_policy(state), reading)
    verdict = decide_mechanisms(state, mechanisms)
    return explain_verdict(state, release, verdict, reading)


def decide_mechanisms(state: LedgerState, mechanisms: Sequence[ResolvedMechanism]) -> Verdict:
    """Match, charge and compare the mechanisms of a release under the active policy.

    Raise `ReleaseRejected` if the mechanisms overlap in too many ways.
    """
    try:
        return decide(active_policy(state), state.balances, mechanisms, state.today)
    except InvalidValue as error:
        raise ReleaseRejected([error]) from None


def explain_verdict(
    state: LedgerState, release: Release, verdict: Verdict, reading: Reading = Reading.STRICT
) -> Decision:
    """Return the decision of a verdict, with reasons and counter-offers."""
    enforced = active_policy(state)
    reasons = reasons_for(verdict, partial(top_spenders, state))
    offers = find_counter_offers(
        enforced, state.balances, state.today, release.body, verdict, reading
    )
    return Decision(
        release=release.id,
        allowed=verdict.allowed,
        policy=enforced.policy.digest,
        reasons=reasons,
        uncovered=verdict.uncovered,
        predicate_errors=verdict.predicate_errors,
        counter_offers=offers,
    )


def active_policy(state: LedgerState) -> EnforcedPolicy:
    """Return the active policy. Raise `OperationRejected` if the ledger has none."""
    if state.enforced is None:
        raise no_policy_error()
    return state.enforced


def recorded_decision(event: Event, status: str, release: Release) -> Decision:
    """Return the decision of an event as a replay.

    Raise `OperationRejected` if the release differs from the recorded one, was imported or voided.
    """
    if not isinstance(event, ReleaseDecided | ReleaseImported):
        raise InvariantBroken("the request of a release is neither decided nor imported")
    if encode_canonical(event.body) != encode_canonical(release.body):
        raise OperationRejected(f"the id `{release.id}` was used for another release", "id-taken")
    if isinstance(event, ReleaseImported):
        raise OperationRejected(
            f"release `{release.id}` was imported and is already charged", "already-imported"
        )
    if status == VOIDED:
        raise OperationRejected(
            f"release `{release.id}` was voided; submit it under another id", "already-voided"
        )
    return Decision.from_json(json.loads(event.answer)).as_replay()


def require_reservation(state: LedgerState, release: str) -> ReleaseEntry:
    """Return the entry of a reserved release. Raise `OperationRejected` if it is not reserved."""
    entry = state.entries.get(release)
    if entry is None:
        raise OperationRejected(f"there is no release `{release}`", "not-found")
    if entry.status != RESERVED:
        raise OperationRejected(
            f"release `{release}` is {entry.status}, not reserved", "not-reserved"
        )
    return entry


def ensure_within_reservation(
    state: LedgerState, entry: ReleaseEntry, used: Release, reading: Reading = Reading.STRICT
) -> None:
    """Raise `OperationRejected` unless the used mechanisms stay within the reservation.

    They must cost no rule more than the reservation, satisfy every per-release rule, and be
    covered.
    """
    enforced = active_policy(state)
    mechanisms = resolve_or_reject(used, enforced, reading)
    verdict = decide(enforced, None, mechanisms)
    per_release = [c for c in verdict.checks if c.section is enforced.each_release]
    if verdict.uncovered or verdict.predicate_errors or not all(c.holds.all() for c in per_release):
        raise OperationRejected("the used release would be denied", "more-than-reserved")
    matches, _ = match_mechanisms(enforced.cumulative, mechanisms)
    month = state.charge_groups[entry.charge_group].month
    charges = charges_by_region(enforced.cumulative, mechanisms, matches, month)
    if not charges_at_most(enforced.cumulative, charges, state.charges_for_release(entry)):
        raise OperationRejected(
            "the used release costs more than the reservation", "more-than-reserved"
        )


def ensure_not_pending(state: LedgerState, release: str) -> None:
    """Raise `OperationRejected` if a proposal for this release is open or was rejected."""
    proposal = state.newest_proposal("release", release)
    if proposal is not None and proposal.open:
        raise OperationRejected(
            f"release `{release}` is pending approval as proposal {proposal.number}", "pending"
        )
    if proposal is not None and not proposal.approved:
        raise rejected_release_error(release)


def rejected_release_error(release: str) -> OperationRejected:
    """Return the error for a release that an approver rejected."""
    return OperationRejected(
        f"release `{release}` was rejected; submit it under another id", "already-rejected"
    )


def no_policy_error() -> OperationRejected:
    """Return the error for a ledger without a policy."""
    return OperationRejected("no active policy; run `dpolicy apply` first", "no-policy")
