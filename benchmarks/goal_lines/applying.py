"""Waiting for `apply`: how long a client waits while a policy is applied to many contents."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from threading import Event, Thread

from benchmarks.goal_lines.line import Line, Options
from benchmarks.goal_lines.past_releases import append_records, copy_decisions, decide_contents
from benchmarks.workloads import Workload, make_10k_workload

from dpolicy.ledger.store_address import open_store
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.service.server import keep_state_out_of_collections
from dpolicy.text.yaml_reader import Source

#: The client continues for this number of submissions: the first of them may fold the ledger.
_SUBMISSIONS_AFTER = 20
#: Contents that are decided; the others are copies with another noise.
_DECIDED = 200


def measure_waits(
    point: DecisionPoint, workload: Workload, meanwhile: Callable[[], object]
) -> list[float]:
    """Return the seconds of each submission of one client during a call and shortly after it."""
    waits: list[float] = []
    has_ended = Event()

    def run_client() -> None:
        remaining = _SUBMISSIONS_AFTER
        for body in workload.repeat_bodies():
            if has_ended.is_set():
                remaining -= 1
            start = time.perf_counter()
            point.submit(body)
            waits.append(time.perf_counter() - start)
            if not remaining:
                return

    client = Thread(target=run_client)
    client.start()
    try:
        meanwhile()
    finally:
        has_ended.set()
        client.join()
    return waits


def change_policy(policy: CompiledPolicy) -> CompiledPolicy:
    """Return the policy with a slightly larger budget."""
    texts = [(source.name, source.text) for source in policy.sources]
    return compile_policy(
        [Source(name, text.replace("epsilon: 3000", "epsilon: 3001")) for name, text in texts]
    )


def measure_applying(options: Options) -> list[Line]:
    """Return the lines of a client that waits while a policy is applied."""
    workload, contents = make_10k_workload(), options.contents
    changed = change_policy(workload.policy)
    store = open_store(f"{options.folder}/applied.db")
    decided = decide_contents(workload, _DECIDED, _DECIDED)
    append_records(store, copy_decisions(decided, contents, changes_noise=True))
    point = DecisionPoint(store)
    keep_state_out_of_collections()  # as `dpolicy serve` does at its start
    measure_waits(point, workload, lambda: None)
    quiet = measure_waits(point, workload, lambda: time.sleep(options.seconds))
    during = measure_waits(point, workload, lambda: point.apply(changed))
    point.close()
    median = statistics.median(quiet)
    name = f"Longest wait of a client during `apply` on {contents:,} contents"
    return [
        Line("Median wait of a client without `apply`", median * 1e3, unit="ms"),
        Line("- longest ÷ median, without `apply`", max(quiet) / median),
        Line(name, max(during) * 1e3, unit="ms"),
        Line("- ÷ median without `apply`", max(during) / median, 3),
    ]
