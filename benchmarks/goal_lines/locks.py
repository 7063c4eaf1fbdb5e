"""Time under the write lock: a denied release relative to an allowed one."""

from __future__ import annotations

from benchmarks.goal_lines.line import Line, Options
from benchmarks.goal_lines.watched_store import WriteWatch, watch_writes
from benchmarks.workloads import (
    PlainBody,
    Workload,
    make_body,
    make_small_workload,
    make_web_workload,
)

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint


def measure_held(
    point: DecisionPoint, watch: WriteWatch, body: PlainBody, *, is_allowed: bool
) -> float:
    """Return the CPU seconds under the lock of a submission under a new id."""
    watch.clear()
    decision = point.submit(make_body(*body["mechanisms"]))
    if decision.allowed is not is_allowed:
        raise SystemExit(f"the release must be {'allowed' if is_allowed else 'denied'}")
    return sum(watch.held)


def measure_ratio(workload: Workload, mechanisms: int, rounds: int) -> float:
    """Return the time under the lock of a denied release, relative to an allowed one."""
    store = MemoryStore()
    watch, point = watch_writes(store), DecisionPoint(store)
    point.apply(workload.policy)
    wide, large = workload.make_wide_body(mechanisms), workload.make_large_body(mechanisms)
    point.submit(large)  # uses most of the budget
    allowed, denied = [], []
    for _ in range(rounds):
        allowed.append(measure_held(point, watch, wide, is_allowed=True))
        denied.append(measure_held(point, watch, large, is_allowed=False))
    return min(denied) / min(allowed)


def measure_locks(options: Options) -> list[Line]:
    """Return the lines of the time under the lock."""
    return [
        Line(
            f"CPU under the lock, denied ÷ allowed, {workload.name}, mechanisms: {mechanisms}",
            measure_ratio(workload, mechanisms, 3 * options.rounds),
            1.5,
        )
        for workload in (make_small_workload(), make_web_workload())
        for mechanisms in (1, 16)
    ]
