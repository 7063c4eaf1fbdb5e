"""A state and a request → the decision to record, or why the request makes no sense there; pure.

A repeated id gives back the recorded answer. What ends or redescribes a release may never lower
what it is charged for beyond what was really run.
"""

from __future__ import annotations

import json

from dpolicy.balances.enforced_policy import enforced_sections
from dpolicy.decisions.counter_offers import find_counter_offers
from dpolicy.decisions.decide import charges_at_most, charges_by_region, decide
from dpolicy.decisions.reasons import reasons_for
from dpolicy.decisions.resolution import resolve_or_reject
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
from dpolicy.releases.body import Body, release_from_body
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.releases.release_format import release_from_plain
from dpolicy.rules.compiler import CompiledPolicy


def parse_request(release: Release | Body) -> Release:
    """Return a release that can be decided. Raise `PolicyRejected` with all its errors.

    A release that `release_format` made is returned as it is. A mapping, or a release that was
    built by hand (`Release.is_parsed`), is parsed as strictly as a file.
    """
    if not isinstance(release, Release):
        return release_from_plain(release)
    return release if release.is_parsed else release_from_plain(release.body)


def evaluate_release(state: LedgerState, release: Release) -> Decision:
    """What the rules say of a release now, with reasons and counter-offers."""
    policy = state.policy
    if policy is None:
        raise no_policy_error()
    mechanisms = resolve_or_reject(release, policy)
    state.account.remember_resolution(release, mechanisms)
    try:
        verdict = decide(policy, state.balances, mechanisms, state.today)
    except InvalidValue as error:  # its mechanisms overlap in too many ways
        raise ReleaseRejected([error]) from None
    return Decision(
        release=release.id,
        allowed=verdict.allowed,
        policy=policy.digest,
        reasons=reasons_for(verdict, lambda number, at: top_spenders(state, number, at)),
        uncovered=verdict.uncovered,
        predicate_errors=verdict.failed,
        counter_offers=find_counter_offers(
            policy, state.balances, state.today, release.body, verdict
        ),
    )


def recorded_decision(event: Event, status: str, release: Release) -> Decision:
    """The answer that was given to this id before."""
    if not isinstance(event, ReleaseDecided | ReleaseImported):
        raise InvariantBroken("only what was asked can be replayed")
    if encode_canonical(event.body) != encode_canonical(release.body):
        raise OperationRejected(f"the id `{release.id}` was used for another release", "id-taken")
    if isinstance(event, ReleaseImported):
        raise OperationRejected(
            f"the release `{release.id}` was imported: it is charged already", "already-imported"
        )
    if status == VOIDED:
        raise OperationRejected(
            f"the release `{release.id}` was voided: ask again under another id", "already-voided"
        )
    return Decision.from_json(json.loads(event.answer)).as_replay()


def find_reservation(state: LedgerState, release: str) -> ReleaseEntry:
    """A release that is held and can be committed or voided."""
    entry = state.entries.get(release)
    if entry is None:
        raise OperationRejected(f"there is no release `{release}`", "not-found")
    if entry.status != RESERVED:
        raise OperationRejected(
            f"the release `{release}` is {entry.status}, not reserved", "not-reserved"
        )
    return entry


def ensure_within_reservation(state: LedgerState, entry: ReleaseEntry, body: Body) -> None:
    """What was run must cost no rule more than what was reserved, and be covered by as many."""
    policy = state.policy
    if policy is None:
        raise no_policy_error()
    mechanisms = resolve_or_reject(release_from_body(body), policy)
    verdict = decide(policy, None, mechanisms)
    each = [checks for checks in verdict.checks if checks.section.compiled.rules.each_release]
    if verdict.uncovered or verdict.failed or not all(checks.holds.all() for checks in each):
        raise OperationRejected("what was run would not have been allowed", "more-than-reserved")
    of, _ = enforced_sections(policy)
    matches = [of.compiled.index.match(m.predicate_input) for m in mechanisms]
    used = charges_by_region(of, mechanisms, matches, state.charge_groups[entry.charge_group].month)
    if not charges_at_most(of, used, state.charges_for_release(entry)):
        raise OperationRejected(
            "what was run costs more than what was reserved", "more-than-reserved"
        )


def ensure_not_pending(state: LedgerState, release: str) -> None:
    """Raise `Misused` if a second person has yet to answer for a release, or has refused it."""
    proposal = state.newest_proposal("release", release)
    if proposal is not None and proposal.open:
        said = f"the release `{release}` waits for a second person as proposal {proposal.number}"
        raise OperationRejected(said, "pending")
    if proposal is not None and not proposal.approved:
        raise rejected_release_error(release)


def rejected_release_error(release: str) -> OperationRejected:
    """The error for a release that a second person did not want."""
    said = f"the release `{release}` was rejected: ask again under another id"
    return OperationRejected(said, "already-rejected")


def no_policy_error() -> OperationRejected:
    """The error for a ledger on which nothing can be decided yet."""
    return OperationRejected(
        "the ledger has no policy yet: `dpolicy apply` puts one in force", "no-policy"
    )


def ensure_policy_unchanged(state: LedgerState, judged_by: CompiledPolicy | None) -> None:
    """Raise `Misused` if another policy came into force since somebody judged by one."""
    now = state.policy
    if (now and now.digest) != (judged_by and judged_by.digest):
        said = "another policy came into force meanwhile: look at it, and ask again"
        raise OperationRejected(said, "policy-changed")
