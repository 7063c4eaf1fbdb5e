"""Hash chain: records with number and hash, and the check of each link."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from dpolicy.errors import LedgerDamaged
from dpolicy.ledger.events import Event, to_bytes

#: The hash that the first record follows.
GENESIS = hashlib.sha256(b"dpolicy ledger 1").digest()


@dataclass(frozen=True, slots=True)
class Record:
    """A stored event: its number (from 1), its hash, and its canonical bytes."""

    sequence: int
    digest: bytes
    payload: bytes


def record_hash(previous: bytes, sequence: int, payload: bytes) -> bytes:
    """Return the hash of a record. It covers all earlier records through `previous`."""
    return hashlib.sha256(previous + sequence.to_bytes(8, "big") + payload).digest()


def next_record(previous: Record | None, event: Event) -> Record:
    """Return the record that stores an event after `previous`, or as the first record."""
    payload = to_bytes(event)
    sequence = previous.sequence + 1 if previous else 1
    digest = record_hash(previous.digest if previous else GENESIS, sequence, payload)
    return Record(sequence, digest, payload)


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
