"""Bytes → chained records, and stores that are made for one test."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterable, Sequence

from dpolicy.ledger.chain import Record, check_chain, record_hash
from dpolicy.ledger.chain_reader import Head

_LOG = logging.getLogger("dpolicy.tests")


def follow(head: Head, payloads: Iterable[bytes]) -> list[Record]:
    """The records that payloads become behind a head."""
    made: list[Record] = []
    digest, sequence = head.digest, head.sequence
    for payload in payloads:
        sequence += 1
        digest = record_hash(digest, sequence, payload)
        made.append(Record(sequence, digest, payload))
    return made


def head_of(records: Sequence[Record], before: Head | None = None) -> Head:
    """Where records end."""
    if not records:
        return before or Head()
    return Head(records[-1].sequence, records[-1].digest)


def verified(records: Iterable[Record]) -> list[Record]:
    """Records whose chain holds."""
    previous: Record | None = None
    seen = []
    for record in records:
        check_chain(previous, record)
        previous = record
        seen.append(record)
    return seen


def seeded(test: str) -> random.Random:
    """A generator whose seed is shown when the test fails; DPOLICY_SEED repeats a run."""
    seed = int(os.environ.get("DPOLICY_SEED", "0")) or random.SystemRandom().getrandbits(48)
    _LOG.warning("%s: DPOLICY_SEED=%d", test, seed)
    return random.Random(f"{test}:{seed}")
