"""A decision is true exactly if it allows the release, and no code takes a denial for None."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.pdp.builders import pure, started

from dpolicy.ledger.events import ReleaseDecided, from_bytes, next_record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.state.proposal import Proposal
from dpolicy.releases.decision import Decision


def test_a_decision_is_true_exactly_if_it_is_allowed() -> None:
    point = started()
    published = [
        release["release"]
        for release in (pure("small", "0.5"), pure("large", "5"))
        if point.submit(release)
    ]
    assert published == ["small"]
    assert not point.check(pure("another", "5")) and point.check(pure("another", "0.5"))
    assert not point.reserve(pure("held", "5")) and point.reserve(pure("held-small", "0.5"))
    replayed = point.submit(pure("large", "5"))
    assert replayed.replayed and not replayed and not Decision.from_json(replayed.as_json())


def test_the_audit_compares_the_answer_of_a_denial() -> None:
    store = MemoryStore()
    point = started(store=store)
    point.submit(pure("large", "5"))
    assert audit_ledger(store).findings == ()
    *before, last = store.records_after(0)
    event = from_bytes(last.payload)
    assert isinstance(event, ReleaseDecided)
    answer = json.loads(event.answer)
    assert answer["would-fit"] == [], "the search for offers runs after the commit"
    answer["reasons"][0]["spent"]["epsilon"] = 0.5
    changed = replace(event, answer=json.dumps(answer, ensure_ascii=False, sort_keys=True))
    findings = audit_ledger(MemoryStore([*before, next_record(before[-1], changed)])).findings
    assert [finding.sequence for finding in findings] == [2]


def test_a_proposal_is_false() -> None:
    """`propose` returns a proposal, or the recorded decision of a repeated id."""
    point = started()
    proposal = point.propose(pure("small", "0.5"), by="ana")
    assert not proposal
    assert point.approve(proposal.number, by="ben") if isinstance(proposal, Proposal) else False
    assert point.propose(pure("small", "0.5"), by="ana")


def test_the_audit_detects_a_second_proposal_of_an_id() -> None:
    store = MemoryStore()
    point = started(store=store)
    point.propose(pure("small", "0.5"), by="ana")
    *before, last = store.records_after(0)
    again = next_record(last, from_bytes(last.payload))
    findings = audit_ledger(MemoryStore([*before, last, again])).findings
    assert [finding.sequence for finding in findings] == [3]
