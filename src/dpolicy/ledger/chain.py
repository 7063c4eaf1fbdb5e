"""Hash chain: records with number and hash, and the check of each link."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from dpolicy.errors import LedgerDamaged
from dpolicy.ledger.events import Event, to_bytes

#: The hash before the first record.
GENESIS = hashlib.sha256(b"dpolicy ledger 1").digest()


@dataclass(frozen=True, slots=True)
class Record:
    """An event as it is stored: its number from 1, its hash, and its bytes."""

    sequence: int
    digest: bytes
    payload: bytes


def record_hash(previous: bytes, sequence: int, payload: bytes) -> bytes:
    """The hash of a record, which covers all records before it."""
    return hashlib.sha256(previous + sequence.to_bytes(8, "big") + payload).digest()


def next_record(previous: Record | None, event: Event) -> Record:
    """The record that an event becomes behind another."""
    payload = to_bytes(event)
    sequence = previous.sequence + 1 if previous else 1
    digest = record_hash(previous.digest if previous else GENESIS, sequence, payload)
    return Record(sequence, digest, payload)


def check_chain(previous: Record | None, record: Record) -> None:
    """Raise `LedgerDamaged` if a record does not follow another."""
    expected = previous.sequence + 1 if previous else 1
    if record.sequence != expected:
        raise LedgerDamaged(f"record {expected} is missing: record {record.sequence} follows")
    before = previous.digest if previous else GENESIS
    if record_hash(before, record.sequence, record.payload) != record.digest:
        raise LedgerDamaged(f"record {record.sequence} was changed, or one before it was")
