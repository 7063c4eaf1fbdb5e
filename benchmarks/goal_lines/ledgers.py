"""Long ledgers: CPU to open them from a snapshot, to fold them without one, and to verify them.

The goals are for 1,000,000 events. A shorter run measures two lengths and extends the line through
both; its lines are labelled as extrapolated.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from benchmarks.goal_lines.durable import CLIENTS
from benchmarks.goal_lines.line import Line, Options
from benchmarks.goal_lines.past_releases import append_records, copy_decisions, decide_contents
from benchmarks.workloads import PlainBody, Workload, make_10k_workload

from dpolicy.ledger.chain import Record
from dpolicy.ledger.store_address import open_store
from dpolicy.pdp.decision_point import DecisionPoint

_EVENTS = 1_000_000
_CONTENTS = 200
#: More records than a process must write to save a snapshot when it closes.
_NEW_RECORDS = 1_001

_OPEN = """\
import json, sys, time
from dpolicy.pdp.decision_point import DecisionPoint
before = time.process_time()
DecisionPoint(sys.argv[1]).check(json.loads(sys.argv[2]))
print(time.process_time() - before)
"""
_VERIFY = """\
import sys, time
from dpolicy.ledger.store_address import open_existing
from dpolicy.pdp.audits.audit import audit_ledger
before = time.process_time()
findings = audit_ledger(open_existing(sys.argv[1])).findings
print(time.process_time() - before)
if findings:
    sys.exit(f"record {findings[0].sequence}: {findings[0].problem}")
"""


@dataclass(frozen=True)
class Sample:
    """CPU seconds of an operation on a ledger of some length."""

    events: int
    seconds: float


def measure_program(program: str, *arguments: str, rounds: int) -> float:
    """Return the least CPU seconds that a program prints, each time in a new process."""
    command = [sys.executable, "-c", program, *arguments]
    runs = [subprocess.check_output(command, text=True) for _ in range(rounds)]
    return min(map(float, runs))


def extrapolate(what: str, goal: float, samples: list[Sample]) -> Line:
    """Return the line of a million events, from samples of two lengths."""
    short, long = samples
    if long.events >= _EVENTS:
        return Line(what, long.seconds, goal, unit="s")
    slope = max(0.0, long.seconds - short.seconds) / (long.events - short.events)
    seconds = long.seconds + slope * (_EVENTS - long.events)
    return Line(f"{what}, extrapolated from {long.events:,}", seconds, goal, unit="s")


def write_ledger(path: str, records: list[Record], releases: int) -> None:
    """Write a ledger without a snapshot."""
    store = open_store(path)
    append_records(store, copy_decisions(records, releases))
    store.close()


def add_snapshot(path: str, workload: Workload) -> None:
    """Submit as many releases as it takes for a snapshot, and close the ledger."""
    point = DecisionPoint(path)
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(point.submit, islice(workload.repeat_bodies(), _NEW_RECORDS)))
    point.close()
    store = open_store(path)
    if store.load_snapshot() is None:
        raise SystemExit("the ledger has no snapshot")
    store.close()


def measure_openings(
    path: str, workload: Workload, releases: int, rounds: int
) -> tuple[Sample, Sample]:
    """Return samples of a fold without a snapshot, and of opening the ledger with one."""
    body: PlainBody = next(workload.repeat_bodies())
    write_ledger(path, decide_contents(workload, _CONTENTS, _CONTENTS), releases)
    folded = measure_program(_OPEN, path, json.dumps(body), rounds=rounds)
    add_snapshot(path, workload)
    opened = measure_program(_OPEN, path, json.dumps(body), rounds=rounds)
    return Sample(releases, folded), Sample(releases + _NEW_RECORDS, opened)


def measure_verification(path: str, workload: Workload, releases: int) -> Sample:
    """Return a sample of the verification of a ledger in which each release was decided."""
    write_ledger(path, decide_contents(workload, _CONTENTS, releases), releases)
    return Sample(releases, measure_program(_VERIFY, path, rounds=1))


def measure_ledgers(options: Options) -> list[Line]:
    """Return the lines of long ledgers, with 10,000 rules."""
    workload, rounds = make_10k_workload(), options.rounds
    folds, openings, verifications = [], [], []
    for part in (3, 1):
        path = f"{options.folder}/opened-{part}.db"
        fold, opening = measure_openings(path, workload, options.events // part, rounds)
        folds.append(fold)
        openings.append(opening)
        path = f"{options.folder}/verified-{part}.db"
        verified = options.verified // part
        verifications.append(measure_verification(path, workload, verified))
    return [
        extrapolate("CPU to open 1,000,000 events from a snapshot", 1, openings),
        extrapolate("CPU to fold 1,000,000 events", 10, folds),
        extrapolate("CPU to verify 1,000,000 events", 90, verifications),
    ]
