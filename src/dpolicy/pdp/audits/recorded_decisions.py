"""Recorded decisions: the audit decides a release again and compares the recorded answer."""

from __future__ import annotations

from collections.abc import Iterator

from dpolicy.decisions.completion import Reading
from dpolicy.errors import InvalidValue, ReleaseRejected
from dpolicy.ledger.decided_records import DecidedRecord
from dpolicy.ledger.events import ReleaseDecided
from dpolicy.ledger.timestamps import expiry_time
from dpolicy.pdp.audits.recorded_answers import decision_outline, has_same_reasons, parse_answer
from dpolicy.pdp.audits.reported_blocks import recompute_reason
from dpolicy.pdp.request_evaluation import evaluate_release
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.releases.body import release_from_body


def choose_reading(meaning: str | None) -> Reading:
    """Return how the release of a record was read: records of format 1 have no meaning."""
    return Reading.LEGACY if meaning is None else Reading.STRICT


def is_valid_reservation(decided: ReleaseDecided | DecidedRecord) -> bool:
    """Return whether a decision has the expiry time of a reservation, or is none."""
    if not decided.reserved:
        return decided.expires is None
    return decided.allowed and decided.expires == expiry_time(decided.at)


def check_decision(state: LedgerState, event: ReleaseDecided) -> Iterator[str]:
    """Yield what is wrong with a decision, given the state before it."""
    if state.policy is None:
        yield f"`{event.release}` was decided without an active policy"
        return
    state.update_balances()
    try:
        release = release_from_body(event.body)
        reading = choose_reading(event.meaning)
        recomputed = evaluate_release(state, release, reading)
    except (InvalidValue, ReleaseRejected) as error:
        yield f"`{event.release}` cannot be resolved: {error}"
        return
    recomputed = recomputed.at_record(state.sequence + 1)
    if not is_valid_reservation(event):
        yield f"`{event.release}` has contradictory reservation fields"
    recorded = parse_answer(event.answer)
    if recorded is None or recorded.allowed != event.allowed:
        yield f"the answer to `{event.release}` contradicts its record"
    if recomputed.allowed != event.allowed:
        status = "allowed" if event.allowed else "denied"
        yield f"`{event.release}` was {status}, and should not have been"
    elif recorded is not None and decision_outline(recorded) != decision_outline(recomputed):
        yield f"the answer to `{event.release}` differs from the recomputed decision"
    elif recorded is not None and not has_same_reasons(
        recorded,
        recomputed,
        lambda reason: recompute_reason(state, release, reason, reading),
        is_old=event.meaning is None,
    ):
        yield f"the answer to `{event.release}` has other reasons than the recomputed decision"
