"""Hash chain: records with number and hash, and the check of each link.

The HTTP client imports this module, so it must not depend on the format of events or releases.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from dpolicy.errors import LedgerDamaged
from dpolicy.text.summaries import html_line, one_line

#: The hash that the first record follows.
GENESIS = hashlib.sha256(b"dpolicy ledger 1").digest()


@dataclass(frozen=True, slots=True)
class Record:
    """A stored event: its number (from 1), its hash, and its canonical bytes."""

    sequence: int
    digest: bytes
    payload: bytes

    def __repr__(self) -> str:
        size = f"{len(self.payload):,} bytes"
        return one_line(self, str(self.sequence), f"{self.digest.hex()[:12]}…", size)

    def _repr_html_(self) -> str:
        return html_line(repr(self))


def record_hash(previous: bytes, sequence: int, payload: bytes) -> bytes:
    """Return the hash of a record. It covers all earlier records through `previous`."""
    return hashlib.sha256(previous + sequence.to_bytes(8, "big") + payload).digest()


def check_chain(previous: Record | None, record: Record) -> None:
    """Raise `LedgerDamaged` if `record` does not follow `previous` by number and hash."""
    expected = previous.sequence + 1 if previous else 1
    if record.sequence != expected:
        raise LedgerDamaged(f"record {expected} is missing: the next record is {record.sequence}")
    before = previous.digest if previous else GENESIS
    if record_hash(before, record.sequence, record.payload) != record.digest:
        raise LedgerDamaged(
            f"hash mismatch at record {record.sequence}: it or an earlier record was changed"
        )
