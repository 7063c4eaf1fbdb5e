"""Audit that checks every record completely: the naive twin of the audit with repeated contents."""

from __future__ import annotations

from dpolicy.ledger.chain import Record
from dpolicy.ledger.store import LedgerStore
from dpolicy.pdp.audits.audit import AuditReport, audit_ledger
from dpolicy.pdp.audits.repeated_decisions import RepeatedDecisions
from dpolicy.pdp.state.ledger_state import LedgerState


class _NothingRepeats(RepeatedDecisions):
    """Repeated decisions that confirm no record."""

    def fold_known_content(self, state: LedgerState, record: Record) -> bool:
        return False


def audit_slowly(store: LedgerStore) -> AuditReport:
    """Audit a ledger without a shortcut."""
    return audit_ledger(store, _NothingRepeats())
