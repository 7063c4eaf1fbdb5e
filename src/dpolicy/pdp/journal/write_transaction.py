"""Write transaction: what a request may read and append while it is the only writer."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import Event, from_bytes, link_record, next_record
from dpolicy.ledger.store import LedgerStore, LogWriter
from dpolicy.pdp.journal.folded_ledger import format_timestamp, read_event
from dpolicy.pdp.state.charge_groups import Resolution
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.planned_release import PlannedRelease
from dpolicy.releases.authors import require_text


@dataclass(slots=True)
class WriteTransaction:
    """Access to the state and the log under the write lock.

    `append` folds each event at once, before it is durable.
    """

    state: LedgerState
    log: LedgerStore | LogWriter
    now: datetime
    added: list[Record] = field(default_factory=list)
    #: The time of new events, in UTC so that timestamps can be compared as text.
    timestamp: str = field(init=False)

    def __post_init__(self) -> None:
        self.timestamp = format_timestamp(self.now)

    def append(self, event: Event, resolution: Resolution | None = None) -> int:
        """Add an event and fold it; return its record number.

        Raise `InvalidValue`, and add nothing, if an argument of the request is no text.

        `resolution` has the resolved mechanisms of a release that was just decided. The state then
        does not resolve them again.
        """
        for name in ("by", "because"):
            require_text(name, getattr(event, name, ""))
        record = next_record(self.state.head, event)
        self.added.append(record)
        self.state.fold([record], resolution)
        return record.sequence

    def append_by_plan(self, payload: bytes, release: PlannedRelease) -> int:
        """Add the event of a decided release, given as canonical bytes; return its record number.

        The result is that of `append`, without parsing the bytes again.
        """
        record = link_record(self.state.head, payload)
        self.added.append(record)
        self.state.fold_by_plan(record, release)
        return record.sequence

    def event(self, sequence: int) -> Event:
        """Return the event of a durable record, or of one that this transaction added."""
        position = sequence - self.added[0].sequence if self.added else -1
        if position >= 0:
            return from_bytes(self.added[position].payload)
        return read_event(self.log, sequence)
