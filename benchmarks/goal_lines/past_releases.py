"""Ledgers with a long past, written faster than by deciding each release.

Each content is decided once; its other records are copies of the decision under new ids. A copy
repeats the numbers in the reasons of the original, so such a ledger can be folded, not verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import Any

from benchmarks.goal_lines.durable import MANY, submit_many
from benchmarks.workloads import Workload

from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import ReleaseDecided, from_bytes, next_record
from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint

_RECORDS_PER_COMMIT = 5_000


def decide_contents(workload: Workload, contents: int, releases: int) -> list[Record]:
    """Return the records of a policy and of decided releases that repeat some contents."""
    point = DecisionPoint(MemoryStore())
    point.apply(workload.policy)
    bodies = islice(workload.repeat_bodies(contents), releases)
    while batch := list(islice(bodies, MANY)):
        submit_many(point, batch)
    return list(point.records())


def copy_decisions(
    records: list[Record], releases: int, *, changes_noise: bool = False
) -> Iterator[Record]:
    """Yield records, then copies of their decisions up to a number of releases.

    With `changes_noise`, each copy has a noise of its own, and so another content.
    """
    yield from records
    events = [from_bytes(record.payload) for record in records]
    decisions = [event for event in events if isinstance(event, ReleaseDecided)]
    last = records[-1]
    for number in range(releases - len(decisions)):
        event = decisions[number % len(decisions)]
        body = {**event.body, "release": f"copy-{number}"}
        if changes_noise:
            body["mechanisms"] = [_change_noise(one, number) for one in body["mechanisms"]]
        last = next_record(last, replace(event, release=body["release"], body=body))
        yield last


def _change_noise(mechanism: dict[str, Any], number: int) -> dict[str, Any]:
    changed = {**mechanism["mechanism"], "sigma": Fraction(1_000_000 + number)}
    return {**mechanism, "mechanism": changed}


def append_records(store: LedgerStore, records: Iterable[Record]) -> None:
    """Append records to an empty ledger."""
    remaining = iter(records)
    while batch := list(islice(remaining, _RECORDS_PER_COMMIT)):
        with store.open_for_writing() as log:
            log.append(batch)
