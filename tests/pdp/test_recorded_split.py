"""Ledgers of version 0.2 keep the split of δ under which their records were decided."""

from __future__ import annotations

import json
from pathlib import Path

from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import from_bytes, next_record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "ledger-anchored.json"


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
