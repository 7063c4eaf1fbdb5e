"""Chained records of arbitrary bytes, and random generators whose seed is logged."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterable, Sequence

from dpolicy.ledger.chain import Record, check_chain, record_hash
from dpolicy.ledger.chain_reader import Head

_LOG = logging.getLogger("dpolicy.tests")


def chain_records(head: Head, payloads: Iterable[bytes]) -> list[Record]:
    """Return records with these payloads that follow a head."""
    records: list[Record] = []
    digest, sequence = head.digest, head.sequence
    for payload in payloads:
        sequence += 1
        digest = record_hash(digest, sequence, payload)
        records.append(Record(sequence, digest, payload))
    return records


def last_head(records: Sequence[Record], before: Head | None = None) -> Head:
    """Return the head after records; `before`, or the empty head, if there are none."""
    if not records:
        return before or Head()
    return Head(records[-1].sequence, records[-1].digest)


def verify_chain(records: Iterable[Record]) -> list[Record]:
    """Return the records as a list. Raise `LedgerDamaged` if their chain is broken."""
    previous: Record | None = None
    verified = []
    for record in records:
        check_chain(previous, record)
        previous = record
        verified.append(record)
    return verified


def seeded_random(test: str) -> random.Random:
    """Return a generator and log its seed; the variable DPOLICY_SEED repeats a run."""
    seed = int(os.environ.get("DPOLICY_SEED", "0")) or random.SystemRandom().getrandbits(48)
    _LOG.warning("%s: DPOLICY_SEED=%d", test, seed)
    return random.Random(f"{test}:{seed}")
