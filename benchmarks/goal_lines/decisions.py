"""CPU of one decision in memory, relative to a hash of its record and between workloads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from benchmarks.goal_lines.durable import MANY, has_submit_many, submit_many
from benchmarks.goal_lines.line import Line, Options, measure_cpu
from benchmarks.workloads import (
    PlainBody,
    Workload,
    make_10k_workload,
    make_small_workload,
    make_web_workload,
)

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint

_HASHES = 1_000
#: Decisions of one measurement. Short ones are less often interrupted by other processes.
_SIZE = MANY if has_submit_many() else 16

#: Returns the CPU seconds of one decision, or of one hash.
Measure = Callable[[], float]


def open_point(workload: Workload) -> DecisionPoint:
    """Return a decision point in memory that has decided each repeated content twice."""
    point = DecisionPoint(MemoryStore())
    point.apply(workload.policy)
    submit_many(point, list(islice(workload.repeat_bodies(), 100)))
    return point


def measure_decision(point: DecisionPoint, bodies: Iterator[PlainBody]) -> float:
    """Return the CPU seconds of one decision in a batch of 256."""
    batch = list(islice(bodies, _SIZE))
    return measure_cpu(lambda: submit_many(point, batch)) / _SIZE


def measure_hash(payload: bytes) -> float:
    """Return the CPU seconds of one SHA-256."""

    def hash_often() -> None:
        for _ in range(_HASHES):
            hashlib.sha256(payload).digest()

    return measure_cpu(hash_often) / _HASHES


def make_measures() -> dict[str, Measure]:
    """Return what is measured, by name."""
    small, web, many_rules = make_small_workload(), make_web_workload(), make_10k_workload()
    point = open_point(small)
    payload = list(point.records())[-1].payload
    measures: dict[str, Measure] = {"hash": partial(measure_hash, payload)}
    measures["varied"] = partial(measure_decision, point, small.vary_bodies())
    classic = make_small_workload("classic")
    for workload, one in (
        (small, point),
        (classic, open_point(classic)),
        (web, open_point(web)),
        (many_rules, open_point(many_rules)),
    ):
        measures[workload.name] = partial(measure_decision, one, workload.repeat_bodies())
    return measures


def measure_decisions(options: Options) -> list[Line]:
    """Return the lines of the CPU of a decision; the measurements alternate."""
    measures = make_measures()
    rounds = [
        {name: measure() for name, measure in measures.items()} for _ in range(6 * options.rounds)
    ]
    best = {name: min(one[name] for one in rounds) for name in measures}
    hashed, repeated, varied = best["hash"], best["small"], best["varied"]
    classic = best["small, classic"]
    how = f"in a batch of {MANY}" if has_submit_many() else "alone; there is no submit_many"
    return [
        Line("CPU of one SHA-256 of a record", hashed * 1e6, unit="µs"),
        Line(f"CPU of a repeated decision, {how}", repeated * 1e6, unit="µs"),
        Line("- ÷ SHA-256 of its record (≤ 45 without the kernel)", repeated / hashed, 15),
        Line("CPU of a repeated decision, default profile ÷ `classic`", repeated / classic, 1.3),
        Line("CPU of a release that was never decided before", varied * 1e6, 150, unit="µs"),
        Line("- ÷ repeated", varied / repeated, 8),
        Line("CPU of a repeated decision, web-analytics ÷ small", best["web"] / repeated, 2),
        Line("CPU of a repeated decision, 10,000 rules ÷ small", best["10k"] / repeated, 1.5),
    ]
