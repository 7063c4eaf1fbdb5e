"""Folded ledger: a ledger state that follows the records of a store.

When the state may be half changed, it is read again, from the snapshot if that is valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from dpolicy.errors import DPolicyError
from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import Event, from_bytes
from dpolicy.ledger.store import LedgerStore, LogWriter
from dpolicy.ledger.timestamps import first_day_of_month
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.snapshot import read_snapshot


def read_record(log: LedgerStore | LogWriter, sequence: int) -> Record:
    """Read a record that exists."""
    return next(iter(log.records_after(sequence - 1)))


def read_event(log: LedgerStore | LogWriter, sequence: int) -> Event:
    """Read the event of a record that exists."""
    return from_bytes(read_record(log, sequence).payload)


def format_timestamp(moment: datetime) -> str:
    """Return a time in the format of the ledger."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


class FoldedLedger:
    """A state and the store that it follows. The caller ensures that one thread uses it at a time.

    `is_doubtful` is true while the state may be half changed. `snapshot_sequence` is the last
    record of the newest known snapshot.
    """

    def __init__(self, store: LedgerStore, state: LedgerState | None = None) -> None:
        self._store = store
        self.is_doubtful = False
        self.snapshot_sequence = 0
        self.state = self._load_state() if state is None else state

    def catch_up(self, log: LedgerStore | LogWriter, now: datetime) -> LedgerState:
        """Fold the records that the state does not have yet, and set the current month."""
        if self.is_doubtful:
            self.state, self.is_doubtful = self._load_state(), False
        self.is_doubtful = True
        self.state.fold(log.records_after(self.state.sequence))
        self.is_doubtful = False
        self.state.now = first_day_of_month(format_timestamp(now))
        return self.state

    @contextmanager
    def doubt_on_error(self) -> Iterator[None]:
        """Load the state again after any error that is not a `DPolicyError`."""
        try:
            yield
        except DPolicyError:
            raise
        except BaseException:
            self.is_doubtful = True
            raise

    def _load_state(self) -> LedgerState:
        """Fold the ledger, from its snapshot if that is valid."""
        snapshot = self._store.load_snapshot()
        state = snapshot and read_snapshot(*snapshot, lambda n: read_record(self._store, n))
        if state:
            self.snapshot_sequence = state.sequence
        else:
            state = LedgerState()
        state.fold(self._store.records_after(state.sequence))
        return state
