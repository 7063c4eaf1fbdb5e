"""Repeated decisions: confirms the records of contents that the audit has checked before.

The audit checks the first record of a content under a policy completely. What follows from content
and policy alone is kept: the resolved mechanisms, the matched rules, the charges and the meaning. A
later record of the content is confirmed if it is, byte by byte, the record that the decision point
would write now. Every other record is left to the complete check.
"""

from __future__ import annotations

from dataclasses import dataclass
from json.encoder import encode_basestring

from dpolicy.balances.balances import Charge
from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.decisions.decide import (
    RuleChecks,
    Verdict,
    charges_by_region,
    check_charges,
    check_release,
    find_uncovered,
    match_mechanisms,
)
from dpolicy.decisions.reasons import reasons_for
from dpolicy.errors import InvalidValue, LedgerDamaged, ReleaseRejected
from dpolicy.ledger.chain import Record
from dpolicy.ledger.decided_records import DecidedRecord, decode_decided_record
from dpolicy.ledger.events import Event, ReleaseDecided, mechanism_bytes
from dpolicy.ledger.timestamps import first_day_of_month
from dpolicy.pdp.audits.recorded_decisions import is_valid_reservation
from dpolicy.pdp.plans.decision_plan import DecisionPlan, plan_release
from dpolicy.pdp.plans.reason_text import nested_json
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.releases.body import release_from_body
from dpolicy.releases.decision import Decision

#: Largest number of contents that are kept.
MAX_CONTENTS = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class _Content:
    """What a content means under a policy: its checks that do not depend on balances, its charges.

    `plan` decides most releases quickly. Charges are None if no cumulative rule is compared.
    """

    plan: DecisionPlan
    fixed_checks: tuple[RuleChecks, ...]
    charges: tuple[Charge, ...] | None
    uncovered: tuple[str, ...]
    predicate_errors: tuple[str, ...]


class RepeatedDecisions:
    """The contents that were checked under the active policy. Mutable; owned by an audit."""

    def __init__(self) -> None:
        self._enforced: EnforcedPolicy | None = None
        self._day = 0
        self._contents: dict[tuple[str, bytes, str], _Content] = {}

    def add(self, state: LedgerState, event: Event, record: Record) -> None:
        """Keep the content of a record in which a complete check has no finding.

        `state` is the state before the record.
        """
        if not isinstance(event, ReleaseDecided) or event.meaning is None or not state.enforced:
            return
        self._follow_policy(state)
        if len(self._contents) >= MAX_CONTENTS:
            self._contents.clear()
        try:
            content = _read_content(state, state.enforced, event)
        except (InvalidValue, ReleaseRejected):
            return
        key = (event.body.get("by", ""), mechanism_bytes(record.payload), event.meaning)
        self._contents[key] = content

    def fold_known_content(self, state: LedgerState, record: Record) -> bool:
        """Fold a record that repeats a known content, if a complete check would have no problem.

        Return False for any other record, and do not fold it. The balances of the state are updated
        in both cases. The caller has checked the hash of the record, and that no approved proposal
        waits to be executed.
        """
        if (quick := decode_decided_record(record.payload)) is None or state.enforced is None:
            return False
        decided, mechanisms = quick
        try:
            state.now = first_day_of_month(decided.at)
        except LedgerDamaged:
            return False
        self._follow_policy(state)
        release = decided.release
        content = self._contents.get((decided.body.by, mechanisms, decided.meaning))
        if content is None or not is_valid_reservation(decided):
            return False
        if decided.reserved and not decided.allowed:
            return False
        if release in state.entries or state.proposals.newest("release", release) is not None:
            return False
        state.update_balances()
        planned = content.plan.answer(state, release)
        if planned is not None and planned.allowed != decided.allowed:
            return False
        answer = planned.nested if planned else _answer(state, state.enforced, content, decided)
        if answer is None or _encode_record(decided, mechanisms, answer) != record.payload:
            return False
        if planned is None:
            state.fold([record])
        else:
            allowed = planned.allowed
            state.fold_by_plan(
                record,
                content.plan.planned_release(release, decided.at, decided.expires, allowed=allowed),
            )
        return True

    def _follow_policy(self, state: LedgerState) -> None:
        """Forget all contents if the policy or the month changed."""
        if state.enforced is None:
            return
        if state.enforced is not self._enforced or state.today != self._day:
            self._enforced, self._day, self._contents = state.enforced, state.today, {}


def _read_content(state: LedgerState, enforced: EnforcedPolicy, event: ReleaseDecided) -> _Content:
    release = release_from_body(event.body)
    plan = plan_release(enforced, release, event.by, state.today)
    mechanisms = plan.resolved.mechanisms
    per_release, cumulative = enforced.each_release, enforced.cumulative
    release_matches, release_errors = match_mechanisms(per_release, mechanisms)
    matches, errors = match_mechanisms(cumulative, mechanisms)
    uncovered: tuple[str, ...] = ()
    if not enforced.policy.accounting.allow_uncovered:
        uncovered = find_uncovered(cumulative, mechanisms, matches)
    fixed: tuple[RuleChecks, ...] = ()
    if per_release.compiled.rules and not release_errors:
        fixed = (check_release(enforced, mechanisms, release_matches, state.today),)
    own_charges: tuple[Charge, ...] | None = None
    if cumulative.compiled.rules and not errors:
        own_charges = charges_by_region(cumulative, mechanisms, matches, state.today)
    return _Content(plan, fixed, own_charges, uncovered, (*release_errors[:1], *errors[:1]))


def _answer(
    state: LedgerState, enforced: EnforcedPolicy, content: _Content, decided: DecidedRecord
) -> str | None:
    """Return the nested answer to a release now; None if its record has another result.

    `request_evaluation.evaluate_release` is the twin.
    """
    checks = content.fixed_checks
    if content.charges is not None:
        checks = (*checks, check_charges(enforced.cumulative, state.balances, content.charges))
    verdict = Verdict(checks, content.uncovered, content.predicate_errors)
    if verdict.allowed != decided.allowed:
        return None
    decision = Decision(
        release=decided.release,
        allowed=verdict.allowed,
        policy=enforced.policy.digest,
        reasons=reasons_for(verdict),
        uncovered=verdict.uncovered,
        predicate_errors=verdict.predicate_errors,
        sequence=state.sequence + 1,
    )
    return nested_json(decision.as_json())


def _encode_record(decided: DecidedRecord, mechanisms: bytes, answer: str) -> bytes | None:
    """Return the canonical bytes of a decided release; None if a text cannot be encoded.

    `mechanisms` are canonical, and the answer is nested. `events.to_bytes` is the twin.
    """
    text, release = encode_basestring, encode_basestring(decided.release)
    author = f'"by":{text(decided.body.by)},' if decided.body.by else ""
    expires = "null" if decided.expires is None else text(decided.expires)
    before = (
        f'{{"allowed":{_BOOLEANS[decided.allowed]},"answer":"{answer}","at":{text(decided.at)},'
        f'"body":{{{author}"mechanisms":'
    )
    after = (
        f',"release":{release}}},"by":{text(decided.by)},"event":"release-decided",'
        f'"expires":{expires},"format":3,"meaning":{text(decided.meaning)},'
        f'"release":{release},"reserved":{_BOOLEANS[decided.reserved]}}}'
    )
    try:
        return before.encode("utf-8") + mechanisms + after.encode("utf-8")
    except UnicodeEncodeError:
        return None


_BOOLEANS = {True: "true", False: "false"}
