"""Ledgers of version 0.2 keep the split of δ under which their records were decided."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from dpolicy.errors import LedgerDamaged
from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import PolicyApplied, from_bytes, next_record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.policy_changes.recorded_policy import compile_recorded_policy
from dpolicy.privacy.certificates import PURE, renyi
from dpolicy.privacy.reserves.ladder import LADDER as RESERVES
from dpolicy.privacy.shares.anchored_shares import LADDER
from dpolicy.privacy.thresholds import DEFAULT_ORDERS, anchor_order

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "ledger-anchored.json"
TEXT = """
dpolicy: 1
accounting: {delta: 1e-8, profile: anchored}
policies:
  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 6}}
"""


def test_a_ledger_of_version_0_2_with_anchored_budgets_verifies() -> None:
    """Its records were decided with 1/14 of δ for stated leaks; 10 % would decide otherwise."""
    document = json.loads(GOLDEN.read_text("utf-8"))
    records: list[Record] = []
    for text in document["records"]:
        event = from_bytes(text.encode("utf-8"))
        records.append(next_record(records[-1] if records else None, event))
    assert records[-1].digest.hex() == document["head"]
    store = MemoryStore()
    with store.open_for_writing() as log:
        log.append(records)
    assert audit_ledger(store).findings == ()
    point = DecisionPoint(store)
    assert {name: entry.status for name, entry in point.entries.items()} == document["statuses"]
    point.close()


def test_the_defaults_of_a_record_decide_its_split() -> None:
    event = PolicyApplied("2026-01-01T00:00:00+00:00", "", "", "", (("policy.yaml", TEXT),), ())
    sides = [
        compile_recorded_policy(replace(event, defaults=number)).cumulative.rules[0].bound.delta
        for number in (None, 1, 2, 3)
    ]
    assert sides == [
        Fraction("1e-8") / 14,
        Fraction("1e-8") / 14,
        Fraction("1e-9"),
        Fraction("1e-9"),
    ]
    with pytest.raises(LedgerDamaged, match="unknown policy defaults 99"):
        compile_recorded_policy(replace(event, defaults=99))


@pytest.mark.parametrize("number", (1, 2))
def test_a_recorded_anchored_policy_keeps_half_of_the_mass_on_its_own_anchor(number: int) -> None:
    event = PolicyApplied("2026-01-01T00:00:00+00:00", "", "", "", (("policy.yaml", TEXT),), ())
    old, new = (
        {
            certificate
            for ((certificate, _),) in compile_recorded_policy(recorded)
            .cumulative.rules[0]
            .bound.clauses
        }
        for recorded in (replace(event, defaults=number), replace(event, defaults=3))
    )
    anchor = anchor_order(Fraction(6), Fraction("1e-8"))
    on_ladder = {renyi(order) for order in LADDER}
    on_grid = {renyi(order) for order in DEFAULT_ORDERS}
    assert renyi(anchor) in old and not old & (on_ladder - on_grid) and not old & {*RESERVES}
    assert renyi(anchor) not in new and new <= {PURE, *on_ladder, *on_grid, *RESERVES}
    assert new & (on_ladder - on_grid) and new & {*RESERVES}
