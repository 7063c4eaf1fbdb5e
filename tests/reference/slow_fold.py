"""Ledger state that decodes every record completely: the naive twin of the quick fold."""

from __future__ import annotations

from dpolicy.ledger.chain import Record
from dpolicy.pdp.state.charge_groups import Resolution
from dpolicy.pdp.state.ledger_state import LedgerState


class SlowLedgerState(LedgerState):
    """A ledger state without the quick decoding of contents that earlier records have."""

    def _fold_known_content(self, record: Record, resolution: Resolution | None) -> bool:
        return False
