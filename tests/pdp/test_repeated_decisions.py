"""The audit of repeated contents has the findings of a complete audit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledger.records import chain_records
from tests.pdp.builders import GLOBAL, ZIP, policy, pure
from tests.reference.slow_audit import audit_slowly

from dpolicy.ledger.canonical import decode_canonical, encode_canonical
from dpolicy.ledger.chain import Record
from dpolicy.ledger.chain_reader import Head
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.audits.repeated_decisions import RepeatedDecisions
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.state.ledger_state import LedgerState

EACH = "  - {name: one, kind: custom, when: always, unit: user, budget: {epsilon: 1.5}}\n"


class Counted(RepeatedDecisions):
    """Repeated decisions that count what they confirm."""

    def __init__(self) -> None:
        super().__init__()
        self.confirmed: list[int] = []

    def fold_known_content(self, state: LedgerState, record: Record) -> bool:
        if super().fold_known_content(state, record):
            self.confirmed.append(record.sequence)
            return True
        return False


def make_payloads() -> list[bytes]:
    """Return a ledger of repeated contents under three policies, over two months."""
    now = datetime(2026, 1, 30, 12, tzinfo=UTC)
    store = MemoryStore()
    point = DecisionPoint(store, lambda: now)
    for number, used in enumerate(
        (policy(GLOBAL, each=EACH), policy(GLOBAL, ZIP % "{epsilon: 1}"), policy(GLOBAL))
    ):
        point.apply(used)
        for count in range(3):
            name = f"{number}-{count}"
            point.submit({**pure(f"a{name}", "0.05", "zip"), "by": "ana"}, by="ana")
            point.submit(pure(f"deny{name}", "5"))
            point.reserve(pure(f"held{name}", "0.05"))
            point.submit({**pure(f"day{name}", "0.01"), "mechanisms": [_daily(count)]})
            now += timedelta(hours=1)
        point.commit(f"held{number}-0")
        point.void(f"held{number}-1", "nothing was read")
        proposal = point.propose(pure(f"asked{number}", "0.05"), "ana")
        point.approve(getattr(proposal, "number", 0), "ben")
        now += timedelta(days=2)
    return [record.payload for record in store.records_after(0)]


def _daily(count: int) -> dict[str, Any]:
    mechanism: dict[str, Any] = pure("", "0.01")["mechanisms"][0]
    day = f"2026-01-{10 + count % 2}"
    return {**mechanism, "time": {"from": day, "to": day}, "where": [{"country": ["CH"]}]}


PAYLOADS = make_payloads()
DECIDED = [n for n, payload in enumerate(PAYLOADS) if b'"event":"release-decided"' in payload]


def audit_both(payloads: list[bytes]) -> tuple[Any, Counted]:
    """Return the report of both audits, which must be equal, and what was confirmed."""
    records, counted = chain_records(Head(), payloads), Counted()
    report = audit_ledger(MemoryStore(records), counted)
    assert report == audit_slowly(MemoryStore(records))
    return report, counted


def test_repeated_contents_are_confirmed() -> None:
    report, counted = audit_both(PAYLOADS)
    assert report.findings == ()
    assert len(counted.confirmed) >= len(DECIDED) // 2


def edit_field(name: str, change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """Return an edit of a field of a record, in canonical form."""

    def edit(payload: bytes) -> bytes:
        fields = decode_canonical(payload)
        return encode_canonical({**fields, name: change(fields[name])})

    return edit


def edit_bytes(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda payload: payload.replace(old, new, 1)


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "allowed": edit_field("allowed", lambda allowed: not allowed),
    "reserved": edit_field("reserved", lambda reserved: not reserved),
    "expires": edit_field("expires", lambda expires: None if expires else "2026-02-01"),
    "another id": edit_field("release", lambda release: f"{release}x"),
    "another month": edit_field("at", lambda at: "2027-03-01T00:00:00+00:00"),
    "no month": edit_field("at", lambda at: "yesterday"),
    "author of the record": edit_field("by", lambda by: "eve"),
    "body": edit_field("body", lambda body: {**body, "by": "eve"}),
    "body id": edit_field("body", lambda body: {**body, "release": "x"}),
    "utility": edit_field("body", lambda body: {**body, "utility": 1}),
    "meaning": edit_field("meaning", lambda meaning: meaning.replace("final", "tuning")),
    "decision": edit_field("answer", lambda answer: answer.replace("allow", "deny")),
    "number": edit_field("answer", lambda answer: answer.replace("0.05", "0.06")),
    "rule": edit_field("answer", lambda answer: answer.replace("global", "local")),
    "sequence": edit_field(
        "answer", lambda answer: answer.replace('"sequence": ', '"sequence": 1')
    ),
    "spaces in the answer": edit_field("answer", lambda answer: answer + " "),
    "spaces in the record": edit_bytes(b',"at":', b', "at":'),
    "order of keys": edit_bytes(b'"format":3,', b""),
    "nothing": lambda payload: payload,
}


@pytest.mark.parametrize("name", EDITS)
def test_a_damaged_record_has_the_findings_of_a_complete_audit(name: str) -> None:
    for number in DECIDED[4:8]:  # contents of the second round, under the first policy
        payloads = list(PAYLOADS)
        payloads[number] = EDITS[name](payloads[number])
        audit_both(payloads)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(DECIDED), st.sampled_from(sorted(EDITS))), max_size=4))
def test_damaged_ledgers_have_the_findings_of_a_complete_audit(
    changes: list[tuple[int, str]],
) -> None:
    payloads = list(PAYLOADS)
    for number, name in changes:
        payloads[number] = EDITS[name](payloads[number])
    audit_both(payloads)


#: The policy of the forged record, and the policy that it follows instead.
WITH_CAP, WITHOUT_CAP = policy(GLOBAL, each=EACH.replace("1.5", "0.5")), policy(GLOBAL)


def forge_record_of_older_policy() -> list[bytes]:
    """Return a ledger whose last record allows what its policy denies.

    The record is that of the policy before, with the digest of the active one.
    """
    now = datetime(2026, 1, 30, 12, tzinfo=UTC)
    ledgers = []
    for second in (WITHOUT_CAP, WITH_CAP):
        store = MemoryStore()
        point = DecisionPoint(store, lambda: now)
        point.apply(WITHOUT_CAP)
        point.submit(pure("a", "0.6"))
        point.apply(second)
        assert point.submit(pure("b", "0.6")).allowed == (second is WITHOUT_CAP)
        ledgers.append([record.payload for record in store.records_after(0)])
    forged = ledgers[0][3].replace(WITHOUT_CAP.digest.encode(), WITH_CAP.digest.encode())
    assert forged != ledgers[0][3]
    return [*ledgers[1][:3], forged]


def test_a_record_of_an_older_policy_is_not_confirmed() -> None:
    report, counted = audit_both(forge_record_of_older_policy())
    assert [finding.sequence for finding in report.findings] == [4]
    assert counted.confirmed == []


def test_a_content_of_an_older_policy_would_be_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary: an audit that keeps contents after a policy change confirms a forged record."""

    def keep(self: RepeatedDecisions, state: LedgerState) -> None:
        self._enforced = state.enforced

    monkeypatch.setattr(RepeatedDecisions, "_follow_policy", keep)
    payloads, counted = forge_record_of_older_policy(), Counted()
    assert audit_ledger(MemoryStore(chain_records(Head(), payloads)), counted).findings == ()
    assert counted.confirmed == [4]
    with pytest.raises(AssertionError):
        audit_both(payloads)
