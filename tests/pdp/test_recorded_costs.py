"""A ledger verifies by the cost rules of its recorded defaults, and by no others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.pdp.builders import body, mechanism, policy, started

from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import PolicyApplied, from_bytes, next_record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.policy.accounting.accounting_defaults import DEFAULTS, NEWEST_DEFAULTS

#: Two releases of Laplace noise fit a budget of ρ in the second rules; in the first, one does.
BUDGET = "  - {name: all, kind: custom, when: always, unit: user, budget: {rho: 0.8}}\n"


def ledger_with_defaults(number: int) -> MemoryStore:
    """Return a ledger decided by the newest defaults whose policy record has another number."""
    store = MemoryStore()
    point = started(BUDGET, store=store)
    for name in ("a", "b"):
        point.submit(body(name, mechanism(kind="laplace", scale=1)))
    point.close()
    records: list[Record] = []
    for record in store.records_after(0):
        event = from_bytes(record.payload)
        if isinstance(event, PolicyApplied):
            event = replace(event, defaults=number)
        records.append(next_record(records[-1] if records else None, event))
    return MemoryStore(records)


@pytest.mark.parametrize("number", [2, 3])
def test_decisions_are_recomputed_by_the_recorded_rules(number: int) -> None:
    """The canary claims defaults with other rules: the second release is then decided otherwise."""
    findings = audit_ledger(ledger_with_defaults(number)).findings
    has_other_rules = DEFAULTS[number].cost_rules is not NEWEST_DEFAULTS.cost_rules
    assert bool(findings) == has_other_rules, findings


@pytest.mark.parametrize("is_proposed", [False, True])
@pytest.mark.parametrize("number", sorted(DEFAULTS))
def test_a_record_has_the_defaults_by_which_its_policy_was_compiled(
    number: int, is_proposed: bool
) -> None:
    """Otherwise its conflicts and decisions are those of another policy."""
    store = MemoryStore()
    point = DecisionPoint(store)
    compiled = policy(BUDGET, defaults=DEFAULTS[number])
    if is_proposed:
        proposal = point.propose_policy(compiled, (), by="ana", because="start")
        point.approve(proposal.number, by="ben")
    else:
        point.apply(compiled)
    events = [from_bytes(record.payload) for record in store.records_after(0)]
    assert [e.defaults for e in events if isinstance(e, PolicyApplied)] == [number]
    answers = [
        point.submit(body(name, mechanism(kind="laplace", scale=1))).allowed for name in ("a", "b")
    ]
    assert answers == [True, DEFAULTS[number].cost_rules is NEWEST_DEFAULTS.cost_rules]
    assert audit_ledger(store).findings == ()
