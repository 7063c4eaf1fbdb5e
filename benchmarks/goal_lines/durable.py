"""Durable decisions: 64 threads and batches, relative to raw appends to the same kind of store."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from threading import Thread

from benchmarks.goal_lines.line import Line, Options
from benchmarks.goal_lines.watched_store import watch_writes
from benchmarks.workloads import PlainBody, Workload, make_small_workload
from tests.ledger.postgres_servers import running

from dpolicy.ledger.chain import Record, record_hash
from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.store_address import open_store
from dpolicy.pdp.decision_point import DecisionPoint

CLIENTS = 64
MANY = 256
RAW_BATCH = 100


@dataclass(frozen=True)
class Throughput:
    """A number of durable records with the wall and CPU time that they took."""

    records: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Records per second of wall time."""
        return self.records / self.seconds


class RawWriter:
    """A ledger that gets records of a given size, without any decision."""

    def __init__(self, store: LedgerStore, first: Record, payload: bytes) -> None:
        self._store, self._last, self._payload = store, first, payload
        with store.open_for_writing() as log:
            log.append([first])

    def write(self, seconds: float, limit: int = 40_000) -> Throughput:
        """Append 100 records a commit until the time or the prepared records end."""
        batches = [self._prepare_batch() for _ in range(limit // RAW_BATCH)]

        def write_batches() -> int:
            count, until = 0, time.perf_counter() + seconds
            for batch in batches:
                with self._store.open_for_writing() as log:
                    log.append(batch)
                count, self._last = count + RAW_BATCH, batch[-1]
                if time.perf_counter() >= until:
                    break
            return count

        return measure_throughput(write_batches)

    def _prepare_batch(self) -> list[Record]:
        batch = []
        for _ in range(RAW_BATCH):
            number = self._last.sequence + 1
            digest = record_hash(self._last.digest, number, self._payload)
            self._last = Record(number, digest, self._payload)
            batch.append(self._last)
        return batch


def measure_throughput(write: Callable[[], int]) -> Throughput:
    """Measure a call that returns the number of records that it wrote."""
    start, cpu = time.perf_counter(), time.process_time()
    count = write()
    return Throughput(count, time.perf_counter() - start, time.process_time() - cpu)


def submit_from_threads(point: DecisionPoint, workload: Workload, seconds: float) -> int:
    """Submit repeated contents from 64 threads; return the number of decisions."""
    counts = [0] * CLIENTS
    until = time.perf_counter() + seconds

    def run_client(client: int) -> None:
        for body in islice(workload.repeat_bodies(), client, None):
            point.submit(body)
            counts[client] += 1
            if time.perf_counter() >= until:
                return

    threads = [Thread(target=run_client, args=(client,)) for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def submit_in_batches(point: DecisionPoint, bodies: Iterator[PlainBody], seconds: float) -> int:
    """Submit batches of 256 from this thread; return the number of decisions."""
    count, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        submit_many(point, list(islice(bodies, MANY)))
        count += MANY
    return count


def has_submit_many() -> bool:
    """Return whether a decision point accepts many releases at once."""
    return hasattr(DecisionPoint, "submit_many")


def submit_many(point: DecisionPoint, bodies: list[PlainBody]) -> None:
    """Submit releases in one call, or one by one if there is no such call."""
    if has_submit_many():
        point.submit_many(bodies)  # type: ignore[attr-defined, unused-ignore]
    else:
        for body in bodies:
            point.submit(body)


def open_raw_writer(address: str, decided: DecisionPoint) -> RawWriter:
    """Return a raw writer of records like those of a ledger with at least two records."""
    policy, first_release = islice(decided.records(), 2)
    return RawWriter(open_store(address), policy, first_release.payload)


@dataclass(frozen=True)
class StoreRuns:
    """Measurements of one store: raw appends, threads and batches; decisions a commit of threads.

    `many` is empty without `submit_many`.
    """

    raw: list[Throughput]
    threads: list[Throughput]
    many: list[Throughput]
    shared: list[float]


def run_store(address: str, raw_address: str, options: Options) -> StoreRuns:
    """Measure raw appends, decisions of threads and decisions of batches in turn."""
    workload, store = make_small_workload(), open_store(address)
    watch, point = watch_writes(store), DecisionPoint(store)
    point.apply(workload.policy)
    for body in islice(workload.repeat_bodies(), 100):
        point.submit(body)
    raw_writer = open_raw_writer(raw_address, point)
    bodies, runs = workload.repeat_bodies(), StoreRuns([], [], [], [])
    for _ in range(options.rounds):
        runs.raw.append(raw_writer.write(options.seconds))
        watch.clear()
        runs.threads.append(
            measure_throughput(lambda: submit_from_threads(point, workload, options.seconds))
        )
        runs.shared.append(runs.threads[-1].records / watch.commits)
        if has_submit_many():
            runs.many.append(
                measure_throughput(lambda: submit_in_batches(point, bodies, options.seconds))
            )
    point.close()
    return runs


def measure_store(name: str, address: str, raw_address: str, options: Options) -> list[Line]:
    """Return the lines of one kind of store."""
    runs = run_store(address, raw_address, options)
    best = max(one.rate for one in runs.raw)
    from_threads = max(one.rate for one in runs.threads)
    from_batches = max((one.rate for one in runs.many), default=math.nan)
    raw_cpu = min(one.cpu / one.records for one in runs.raw)
    cpu = min(one.cpu / one.records for one in runs.threads)
    is_sqlite = name == "SQLite"
    return [
        Line(f"{name}: raw appends, {RAW_BATCH} a commit", best, unit="/s"),
        Line(f"{name}: decisions, {CLIENTS} threads, repeated contents", from_threads, unit="/s"),
        Line("- ÷ raw appends", from_threads / best, 0.2 if is_sqlite else 0.25, is_minimum=True),
        Line("- CPU of a raw append ÷ CPU of a decision", raw_cpu / cpu),
        Line("- decisions a commit", max(runs.shared), 20, is_minimum=True),
        Line(
            f"{name}: submit_many of {MANY} from one thread ÷ raw appends",
            from_batches / best,
            0.35 if is_sqlite else None,
            is_minimum=True,
        ),
    ]


def measure_sqlite(options: Options) -> list[Line]:
    """Return the lines of SQLite."""
    folder = options.folder
    return measure_store("SQLite", f"{folder}/decided.db", f"{folder}/raw.db", options)


def measure_postgres(options: Options) -> list[Line]:
    """Return the lines of PostgreSQL; the raw appends go to a server of their own."""
    with running() as server, running() as raw_server:
        return measure_store("PostgreSQL", server.url, raw_server.url, options)
