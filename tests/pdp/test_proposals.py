"""Proposals: recorded in the ledger, answered by another person, and carried out unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pdp.builders import GLOBAL, ZIP, body, mechanism, policy, pure, started

from dpolicy.allocation.round import allocate
from dpolicy.errors import OperationRejected, ReleaseRejected
from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import (
    Event,
    PolicyApplied,
    PolicyProposed,
    ProposalAnswered,
    ReleaseDecided,
    ReleaseImported,
    ReleaseProposed,
    VoidProposed,
    from_bytes,
    next_record,
)
from dpolicy.ledger.store_address import open_store
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.ledger.timestamps import expiry_time
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.journal.journal import Journal, utc_now
from dpolicy.pdp.state.proposal import Proposal
from dpolicy.pdp.state.snapshot import read_snapshot, write_snapshot
from dpolicy.releases.decision import Decision

NOT_AS_PROPOSED = "an approved proposal was not executed as proposed"
GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "ledger-1.json"


def proposed(point: DecisionPoint, release: str, epsilon: str = "0.5", by: str = "ana") -> Proposal:
    proposal = point.propose(pure(release, epsilon), by)
    assert isinstance(proposal, Proposal)
    return proposal


def code_of(error: pytest.ExceptionInfo[OperationRejected]) -> str:
    return error.value.code


def test_a_proposed_release_is_decided_when_it_is_approved() -> None:
    store = MemoryStore()
    point = started(store=store)
    waiting = proposed(point, "a")
    assert point.budgets()[0].spent == {"epsilon": 0, "delta": 0.0}
    assert proposed(point, "a") == waiting
    decision = point.approve(waiting.number, "ben", "looks fine")
    assert isinstance(decision, Decision) and decision.allowed and not decision.replayed
    assert point.event(decision.sequence or 0).by == "ana"  # type: ignore[union-attr]
    again = point.submit(pure("a", "0.5"))
    assert again.replayed and again.sequence == decision.sequence
    assert point.propose(pure("a", "0.5"), "ana") == again
    assert audit_ledger(store).findings == ()


def test_an_approved_release_is_decided_against_current_balances() -> None:
    point = started()
    waiting = proposed(point, "a", "1.5")
    point.submit(pure("b", "1"))
    decision = point.approve(waiting.number, "ben")
    assert isinstance(decision, Decision) and not decision.allowed
    assert point.entries["a"].status == "denied"


def test_the_proposer_cannot_answer_and_no_proposal_is_answered_twice() -> None:
    store = MemoryStore()
    point = started(store=store)
    waiting = proposed(point, "a")
    for alone in ("ana", ""):
        with pytest.raises(OperationRejected) as error:
            point.approve(waiting.number, alone)
        assert code_of(error) == "second-person"
    point.reject(waiting.number, "ben", "not this one")
    for answer in (point.approve, point.reject):
        with pytest.raises(OperationRejected) as error:
            answer(waiting.number, "ben")
        assert code_of(error) == "already-answered"
    with pytest.raises(OperationRejected) as error:
        point.approve(99, "ben")
    assert code_of(error) == "not-found"
    assert audit_ledger(store).findings == ()


def test_a_pending_or_rejected_release_cannot_be_submitted() -> None:
    point = started()
    waiting = proposed(point, "a")
    with pytest.raises(OperationRejected) as error:
        point.submit(pure("a", "0.5"))
    assert code_of(error) == "pending"
    with pytest.raises(OperationRejected) as error:
        point.propose(pure("a", "0.25"), "ana")
    assert code_of(error) == "id-taken"
    point.reject(waiting.number, "ben")
    with pytest.raises(OperationRejected) as error:
        point.submit(pure("a", "0.5"))
    assert code_of(error) == "already-rejected"
    with pytest.raises(OperationRejected) as error:
        point.propose(pure("a", "0.5"), "ana")
    assert code_of(error) == "already-rejected"
    assert not point.entries


def test_a_pending_release_cannot_be_allocated_and_affects_no_other() -> None:
    """A refused round has appended nothing, so other requests in its commit succeed."""
    point = started()
    proposed(point, "b")
    with pytest.raises(OperationRejected) as error:
        allocate(point, [pure("a", "0.5"), pure("b", "0.5")])
    assert code_of(error) == "pending"
    assert not point.entries


def test_an_unresolvable_release_cannot_be_proposed() -> None:
    point = started()
    with pytest.raises(ReleaseRejected):
        point.propose(pure("a", "0.5", "nothing"), "ana")
    assert not point.proposals


def test_a_void_and_a_policy_can_be_proposed() -> None:
    store = MemoryStore()
    point = started(store=store)
    point.reserve(pure("a", "0.5"), "ana")
    void = point.propose_void("a", "never started", "ana")
    assert point.propose_void("a", "never started", "ana") == void
    assert point.entries["a"].status == "reserved"
    point.approve(void.number, "ben")
    assert point.entries["a"].status == "voided"
    looser = policy(GLOBAL.replace("epsilon: 2", "epsilon: 3"))
    change = point.propose_policy(looser, (), "olga", "more is needed")
    assert point.policy is not None and point.policy.digest != looser.digest
    point.approve(change.number, "otto")
    assert point.policy.digest == looser.digest
    assert [p.kind for p in point.proposals.values()] == ["void", "policy"]
    assert audit_ledger(store).findings == ()


def test_proposals_survive_a_restart_and_a_snapshot(tmp_path: Path) -> None:
    where = str(tmp_path / "ledger.db")
    point = started(store=open_store(where))
    waiting = proposed(point, "a")
    point.reject(proposed(point, "b").number, "ben")
    expected = point.proposals
    point.close()
    again = DecisionPoint(where)
    assert again.proposals == expected
    journal = Journal(open_store(where), utc_now)
    with journal.read() as state:
        records = {r.sequence: r for r in journal.store.records_after(0)}
        copy = read_snapshot(state.sequence, write_snapshot(state), lambda n: records[n])
        assert copy is not None and copy.proposals == expected
        assert copy.proposals.newest("release", "a") == waiting
    journal.close()
    again.close()


def tampered(point: DecisionPoint, *events: object) -> tuple[str, ...]:
    """Return the findings of the audit after events were appended to a copy of the ledger."""
    records: list[Record] = list(point.records())
    for event in events:
        records.append(next_record(records[-1], event))  # type: ignore[arg-type]
    return tuple(finding.problem for finding in audit_ledger(MemoryStore(records)).findings)


def test_the_audit_detects_an_approval_that_was_not_carried_out() -> None:
    point = started()
    waiting = proposed(point, "a")
    made = point.event(waiting.number)
    assert isinstance(made, ReleaseProposed)
    at = made.at
    alone = ProposalAnswered(at, "ana", "", waiting.number, True)
    agreed = ProposalAnswered(at, "ben", "", waiting.number, True)
    decision = point.approve(waiting.number, "ben")
    assert isinstance(decision, Decision) and decision.sequence
    decided = point.event(decision.sequence)
    assert isinstance(decided, ReleaseDecided)

    other = started()
    proposed(other, "a")
    assert any("by the person who made it" in f for f in tampered(other, alone))
    assert any("not executed as proposed" in f for f in tampered(other, agreed))
    assert any("is pending approval as proposal" in f for f in tampered(other, decided))
    expired = VoidProposed(at, "ana", "a", "never started")
    assert any("no release `a`" in f for f in tampered(other, expired))
    unknown = ProposalAnswered(at, "ben", "", 99, True)
    assert any("not open" in f for f in tampered(other, unknown))
    twice = ReleaseProposed(at, "ana", "a", made.body, False)
    assert any("was already in use" in f for f in tampered(other, twice))
    sources = (("p.yaml", "dpolicy: 1\n"),)
    assert tampered(other, PolicyProposed(at, "o", "", "sha256:00", sources, ()))


def forged(store: MemoryStore, changed: Callable[[Event], Event]) -> tuple[str, ...]:
    """Return the findings of the audit after every event was rewritten."""
    records: list[Record] = []
    for record in store.records_after(0):
        event = changed(from_bytes(record.payload))
        records.append(next_record(records[-1] if records else None, event))
    return tuple(finding.problem for finding in audit_ledger(MemoryStore(records)).findings)


@pytest.mark.parametrize("reserve", [False, True])
def test_the_audit_detects_a_reservation_without_approval(reserve: bool) -> None:
    store = MemoryStore()
    point = started(store=store)
    for release, epsilon in (("a", "0.5"), ("large", "5")):
        waiting = point.propose(pure(release, epsilon), "ana", reserve=reserve)
        assert isinstance(waiting, Proposal)
        point.approve(waiting.number, "ben")

    def otherwise(event: Event) -> Event:
        if isinstance(event, ReleaseDecided) and event.allowed:
            until = None if reserve else expiry_time(event.at)
            return replace(event, reserved=not reserve, expires=until)
        return event

    assert forged(store, lambda event: event) == ()
    assert forged(store, otherwise) == (NOT_AS_PROPOSED,)


def test_the_audit_detects_a_conflict_without_approval() -> None:
    store = MemoryStore()
    point = started(store=store)
    point.submit(pure("a", "1.5"))
    tight = policy(GLOBAL.replace("epsilon: 2", "epsilon: 1"))
    waiting = point.propose_policy(tight, ("global",), "olga", "it is time")
    point.approve(waiting.number, "otto")

    def unaccepted(event: Event) -> Event:
        return replace(event, accepted=()) if isinstance(event, PolicyProposed) else event

    def other_reason(event: Event) -> Event:
        if isinstance(event, PolicyApplied) and event.by == "olga":
            return replace(event, because="another reason")
        return event

    assert forged(store, lambda event: event) == ()
    assert forged(store, unaccepted) == (NOT_AS_PROPOSED,)
    assert forged(store, other_reason) == (NOT_AS_PROPOSED,)


def test_a_pending_or_rejected_release_cannot_be_imported() -> None:
    store = MemoryStore()
    point = started(store=store)
    waiting = proposed(point, "a")
    past = ReleaseImported(waiting.at, "olga", "", "a", pure("a", "0.5"))
    for code, words in (("pending", "is pending approval"), ("already-rejected", "was rejected")):
        with pytest.raises(OperationRejected) as error:
            point.import_past(pure("a", "0.5"), "it was run", "olga")
        assert code_of(error) == code
        assert any(words in finding for finding in tampered(point, past))
        if code == "pending":
            point.reject(waiting.number, "ben")
    assert not point.entries
    point.approve(proposed(point, "b").number, "ben")
    assert point.import_past(pure("b", "0.5")) == point.entries["b"].request_record


def test_a_command_fails_if_the_expected_policy_is_not_active() -> None:
    store = MemoryStore()
    point = started(store=store)
    old, tight = point.policy, policy(GLOBAL.replace("epsilon: 2", "epsilon: 1"))
    point.reserve(pure("held", "0.25"), expected_policy=old)
    point.apply(tight, expected_policy=old)
    middle = policy(GLOBAL.replace("epsilon: 2", "epsilon: 1.5"))
    before = list(store.records_after(0))
    acts: list[Callable[[], object]] = [
        lambda: point.apply(middle, expected_policy=old),
        lambda: point.apply(middle, expected_policy=None),
        lambda: point.submit(pure("a", "0.25"), expected_policy=old),
        lambda: point.reserve(pure("a", "0.25"), expected_policy=old),
        lambda: point.propose(pure("a", "0.25"), "ana", expected_policy=old),
        lambda: point.commit("held", expected_policy=old),
        lambda: point.import_past(pure("a", "0.25"), expected_policy=old),
        lambda: allocate(point, [pure("a", "0.25")], expected_policy=old),
    ]
    for act in acts:
        with pytest.raises(OperationRejected) as error:
            act()
        assert code_of(error) == "policy-changed"
    assert list(store.records_after(0)) == before
    assert point.submit(pure("a", "0.25"), expected_policy=tight).allowed
    point.apply(middle)


def golden() -> tuple[list[Record], dict[str, object]]:
    document = json.loads(GOLDEN.read_text("utf-8"))
    records: list[Record] = []
    for text in document["records"]:
        event = from_bytes(text.encode("utf-8"))
        records.append(next_record(records[-1] if records else None, event))
    assert [r.payload.decode("utf-8") for r in records] == document["records"]
    assert records[-1].digest.hex() == document["head"]
    return records, document


def test_a_ledger_of_format_1_continues_in_formats_2_and_3(tmp_path: Path) -> None:
    records, document = golden()
    store = open_store(str(tmp_path / "ledger.db"))
    with store.open_for_writing() as log:
        log.append(records)
    assert audit_ledger(store).findings == ()
    point = DecisionPoint(store)
    assert {name: entry.status for name, entry in point.entries.items()} == document["statuses"]
    assert document["spent"] == {"global": {"epsilon": 1.125}}
    assert {b.rule.name: b.spent["epsilon"] for b in point.budgets()} == {"global": 1.125}
    decision = point.approve(proposed(point, "new", "0.125").number, "ben")
    assert isinstance(decision, Decision) and decision.allowed
    formats = [json.loads(r.payload)["format"] for r in store.records_after(len(records))]
    assert formats == [3, 2, 3]
    assert audit_ledger(store).findings == ()
    point.close()


def test_a_proposed_release_is_resolved_like_a_submitted_one() -> None:
    point = started(GLOBAL, ZIP % "{epsilon: 1}")
    request = body("a", mechanism(("zip",), epsilon="1.5"))
    waiting = point.propose(request, "ana")
    assert isinstance(waiting, Proposal)
    decision = point.approve(waiting.number, "ben")
    assert isinstance(decision, Decision) and decision.exceeded_rules == ("zips",)
