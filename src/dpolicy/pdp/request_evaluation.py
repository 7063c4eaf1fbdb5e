"""Evaluate a release request against the ledger state; pure.

A repeated id returns the recorded decision. Committing or relabelling a release never lowers its
charge below the cost of the mechanisms that were run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.decisions.completion import Reading
from dpolicy.decisions.decide import (
    RuleChecks,
    Verdict,
    charges_at_most,
    charges_by_region,
    decide,
    match_mechanisms,
)
from dpolicy.decisions.exact_rules import exact_budget
from dpolicy.decisions.reasons import reasons_for
from dpolicy.decisions.release_parts import is_part
from dpolicy.decisions.resolution import ResolvedMechanism, resolve_or_reject
from dpolicy.errors import (
    InvalidValue,
    InvariantBroken,
    OperationRejected,
    ReleaseRejected,
)
from dpolicy.ledger.canonical import decode_canonical, encode_canonical
from dpolicy.ledger.events import (
    Event,
    ReleaseDecided,
    ReleaseImported,
    event_author,
    release_body_in,
)
from dpolicy.pdp.state.charge_groups import PENDING_MEANINGS
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.release_archive import RESERVED, VOIDED, ReleaseEntry
from dpolicy.releases.body import Body, release_from_body
from dpolicy.releases.decision import Decision
from dpolicy.releases.meaning import has_statements, meaning_from_text, write_out
from dpolicy.releases.release import MechanismRequest, Release
from dpolicy.releases.release_parser import release_from_plain, snapshot_release

#: Largest number of characters of an id.
MAX_ID_LENGTH = 100


def parse_request(release: Release | Body) -> Release:
    """Return a release that can be decided. Raise `MalformedRelease` with all its errors.

    A release that `release_parser` made is copied, not parsed again. A mapping, or a release that
    was built by hand (`Release.is_parsed`), is parsed as strictly as a file.
    """
    if isinstance(release, Release):
        return snapshot_release(release)
    return release_from_plain(release)


def evaluate_release(
    state: LedgerState, release: Release, reading: Reading = Reading.STRICT
) -> Decision:
    """Return the decision for a new release, with its reasons; record nothing.

    The balances of the state must be updated.
    """
    mechanisms = resolve_or_reject(release, active_policy(state), reading)
    return explain_verdict(state, release, decide_mechanisms(state, mechanisms))


def decide_mechanisms(state: LedgerState, mechanisms: Sequence[ResolvedMechanism]) -> Verdict:
    """Match, charge and compare the mechanisms of a release under the active policy.

    Raise `ReleaseRejected` if the mechanisms overlap in too many ways, or if the charge of an
    allowed release would cut the balances into too many cells.
    """
    enforced = active_policy(state)
    try:
        verdict = decide(enforced, state.balances, mechanisms, state.today)
        if verdict.allowed and any(mechanism.region is not None for mechanism in mechanisms):
            section = enforced.cumulative
            matches, _ = match_mechanisms(section, mechanisms)
            charges = charges_by_region(section, mechanisms, matches, state.today)
            state.balances.ensure_few_cuts(charges)
        return verdict
    except InvalidValue as error:
        raise ReleaseRejected([error]) from None


def explain_verdict(state: LedgerState, release: Release, verdict: Verdict) -> Decision:
    """Return the decision of a verdict, with its reasons. `denial_answers` adds the advice."""
    return Decision(
        release=release.id,
        allowed=verdict.allowed,
        policy=active_policy(state).policy.digest,
        reasons=reasons_for(verdict),
        uncovered=verdict.uncovered,
        predicate_errors=verdict.predicate_errors,
    )


def active_policy(state: LedgerState) -> EnforcedPolicy:
    """Return the active policy. Raise `OperationRejected` if the ledger has none."""
    if state.enforced is None:
        raise no_policy_error()
    return state.enforced


def recorded_decision(state: LedgerState, event: Event, status: str, release: Release) -> Decision:
    """Return the decision of an event as a replay.

    Raise `OperationRejected` if the release differs from the recorded one, was imported or voided.
    """
    if not isinstance(event, ReleaseDecided | ReleaseImported):
        raise InvariantBroken("the request of a release is neither decided nor imported")
    if not is_same_request(event, release):
        raise id_taken_error(state, release.id)
    if isinstance(event, ReleaseImported):
        raise OperationRejected(
            f"release `{release.id}` was imported and is already charged", "already-imported"
        )
    if status == VOIDED:
        raise OperationRejected(
            f"release `{release.id}` was voided; submit it under another id", "already-voided"
        )
    return Decision.from_json(json.loads(event.answer)).as_replay()


def is_same_request(event: Event, release: Release) -> bool:
    """Return whether a release is the one that an event records.

    A request that names no author repeats the request of any author. Before version 0.3 an author
    that was only an argument was recorded beside the body.
    """
    recorded = release_body_in(event)
    authors = ("", recorded.get("by") or event_author(event))
    return release.by in authors and _encode_without_author(recorded) == _encode_without_author(
        release.body
    )


def is_written_out(state: LedgerState, entry: ReleaseEntry, charged: Event, body: Body) -> bool:
    """Return whether a body is the recorded release, with everything that it means written out.

    An export writes a recorded release in this way. `charged` is the event of its charge.
    """
    text = state.charge_groups[entry.charge_group].meaning
    if text in PENDING_MEANINGS:
        return False
    recorded = write_out(release_body_in(charged), meaning_from_text(text))
    authors = ("", recorded.get("by") or event_author(charged))
    return body.get("by", "") in authors and _encode_without_author(
        recorded
    ) == _encode_without_author(body)


def _encode_without_author(body: Body) -> bytes:
    return encode_canonical({key: value for key, value in body.items() if key != "by"})


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


def require_open_reservation(state: LedgerState, release: str, timestamp: str) -> ReleaseEntry:
    """Return the entry of a reserved release. Raise `OperationRejected` if its time has passed."""
    entry = require_reservation(state, release)
    if state.open_reservations.get(release, timestamp) < timestamp:
        raise OperationRejected(f"release `{release}` is expired, not reserved", "not-reserved")
    return entry


def ensure_within_reservation(
    state: LedgerState, entry: ReleaseEntry, used: Release, reading: Reading = Reading.STRICT
) -> None:
    """Raise `OperationRejected` unless the used mechanisms stay within the reservation.

    They must cost no rule more than the reservation, satisfy every per-release rule, and be
    covered. If a loss distribution may satisfy a per-release rule, they must be a part of the
    reservation: they may be chosen from outputs, and exact composition is no filter.
    """
    enforced = active_policy(state)
    mechanisms = resolve_or_reject(used, enforced, reading)
    verdict = decide(enforced, None, mechanisms)
    per_release = [c for c in verdict.checks if c.section is enforced.each_release]
    if verdict.uncovered or verdict.predicate_errors or not all(c.holds.all() for c in per_release):
        raise OperationRejected("the used release would be denied", "more-than-reserved")
    if any(map(_has_exact_rule, per_release)) and not is_part(
        used.mechanisms, _recorded_mechanisms(state, entry)
    ):
        raise OperationRejected(
            "a mechanism of the used release is no part of the reservation; help: leave out "
            "mechanisms, or state fewer runs or more noise, and change nothing else",
            "more-than-reserved",
        )
    matches, _ = match_mechanisms(enforced.cumulative, mechanisms)
    month = state.charge_groups[entry.charge_group].month
    charges = charges_by_region(enforced.cumulative, mechanisms, matches, month)
    if not charges_at_most(enforced.cumulative, charges, state.charges_for_release(entry)):
        raise OperationRejected(
            "the used release costs more than the reservation", "more-than-reserved"
        )


def _has_exact_rule(checks: RuleChecks) -> bool:
    """Return whether a loss distribution may satisfy one of the rules."""
    return any(exact_budget(checks.section, number) for number in checks.rule_numbers.tolist())


def _recorded_mechanisms(state: LedgerState, entry: ReleaseEntry) -> tuple[MechanismRequest, ...]:
    """Return the mechanisms of a charged release, as stated."""
    mechanisms = decode_canonical(state.charge_groups[entry.charge_group].mechanisms)
    return release_from_body({"release": "reserved", "mechanisms": mechanisms}).mechanisms


def ensure_same_statements(state: LedgerState, entry: ReleaseEntry, used: str) -> None:
    """Raise `OperationRejected` unless a used release means what its reservation meant.

    `used` is the meaning of the used release. Each of its mechanisms must have the unit, relation
    and labels of a reserved one, with the same definitions. Then no later policy lowers a charge.
    """
    recorded = state.charge_groups[entry.charge_group].meaning
    if recorded in PENDING_MEANINGS or not has_statements(
        meaning_from_text(used), meaning_from_text(recorded)
    ):
        raise OperationRejected(
            "the active policy reads the used release otherwise than the reservation; commit it "
            "without `used`",
            "policy-changed",
        )


def ensure_not_pending(state: LedgerState, release: str) -> None:
    """Raise `OperationRejected` if a proposal for this release is open or was rejected."""
    proposal = state.proposals.newest("release", release)
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


def is_id_used(state: LedgerState, release: str) -> bool:
    """Return whether the ledger has a release or a proposal of this id."""
    return release in state.entries or state.proposals.newest("release", release) is not None


def suggest_id(state: LedgerState, release: str) -> str:
    """Return an unused id for a changed release: `name-2`, or the next number."""
    base, dash, number = release.rpartition("-")
    if not (dash and number.isdecimal() and is_id_used(state, base)):
        base = release
    counter = 2
    while True:
        candidate = f"{_shorten(base, counter)}-{counter}"
        if candidate != release and not is_id_used(state, candidate):
            return candidate
        counter += 1


def _shorten(base: str, counter: int) -> str:
    """Return the start of an id that leaves room for a number; it ends in a letter or digit."""
    return base[: MAX_ID_LENGTH - 1 - len(str(counter))].rstrip(" -.:/")


def id_taken_error(state: LedgerState, release: str) -> OperationRejected:
    """Return the error for an id that another release has, with an unused id."""
    return OperationRejected(
        f"the id `{release}` was used for another release; "
        f"help: choose a new id, for example `{suggest_id(state, release)}`",
        "id-taken",
    )
