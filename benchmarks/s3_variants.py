"""Readings of scenario S3 against the published bars: which of them could have been run?

For each reading and total budget: utility and the costliest user-month on data that has a time,
beside the bars of DPolicy or of the baseline. Readings differ in the share of requests that read
such data, in what a cohort keeps apart (every month, or past, four months and future), in what the
budget of a month covers (such data, or everything), and in whether static requests are charged to
the month they name or to every one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpolicy.allocation.simulation import Arrival, Simulation
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.balances.partition_space import ALL_TIME
from dpolicy.evaluation.comparison import published_value
from dpolicy.evaluation.experiment import (
    BASELINE,
    OURS,
    EvaluationRun,
    measure_spending,
    policy_for,
    workload_for,
)
from dpolicy.evaluation.s3_variants import charge_coarse_blocks
from dpolicy.evaluation.workload import (
    ROUNDS,
    SCHEDULE,
    TOTALS,
    Workload,
    policy_sources,
    resolve_arrivals,
)
from dpolicy.releases.regions import region_from_boxes
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read the scenario; `timed` None leaves the labels of the workload."""

    name: str
    timed: float | None = None
    coarse: bool = True
    everything: bool = False
    static_everywhere: bool = False
    baseline: bool = False


READINGS = (
    Reading("every month", coarse=False),
    Reading("past, four months, future (as run)"),
    Reading("as run, two thirds timed", 2 / 3),
    Reading("as run, 70 % timed", 0.7),
    Reading("as run, three quarters timed", 0.75),
    Reading("as run, 80 % timed", 0.8),
    Reading("as run, budget for everything", everything=True),
    Reading("every month, budget for everything", coarse=False, everything=True),
    Reading("the same, static in every month", None, False, True, True),
    Reading("baseline, half timed", baseline=True),
    Reading("baseline, three quarters timed", 0.75, baseline=True),
)


def main() -> None:
    """Print a line for each reading and total."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total", type=int, choices=TOTALS, action="append")
    parser.add_argument("--reading", type=int, action="append", help="its number, from 0")
    said = parser.parse_args()
    print(f"{'reading':36} {'ε_t':>3} {'utility':>8} {'bar':>6} {'%':>6} {'month':>6} {'bar':>5}")
    for number in said.reading or range(len(READINGS)):
        for total in said.total or TOTALS:
            print(line(READINGS[number], total), flush=True)


def line(reading: Reading, total: int) -> str:
    """The line of a reading at a total."""
    system = BASELINE if reading.baseline else OURS
    run = EvaluationRun("S3", total, system, "efficient", timed=reading.timed)
    workload = workload_for(run)
    policy = policy_of_reading(reading, run, workload)
    arrivals = charged(reading, workload, resolve_arrivals(workload, policy))
    simulation = Simulation(policy, STRATEGIES[run.strategy], SCHEDULE)
    outcomes = list(simulation.run(arrivals, ROUNDS))
    utility = sum(outcome.utility for outcome in outcomes)
    spent, _ = measure_spending(run, workload, {name for o in outcomes for name in o.selected})
    bar = published_value("S3", system, "utility", total) or 0
    month = published_value("S3", system, "month", total) or 0
    return (
        f"{reading.name:36} {total:3} {utility / 1e6:8.3f} {bar / 1e6:6.2f} "
        f"{100 * (utility / bar - 1):+6.1f} {spent['month']:6.2f} {month:5.2f}"
    )


def policy_of_reading(reading: Reading, run: EvaluationRun, workload: Workload) -> CompiledPolicy:
    """The policy of the scenario, with the budget of a month on everything if so read."""
    if not reading.everything:
        return policy_for(run, workload)
    sources = policy_sources(workload, run.total, as_run=True, baseline=False, profile="classic")
    text = sources[-1].text.replace("when: '\"a1\" in attributes'", "when: always")
    return compile_policy([*sources[:-1], Source("policies.yaml", text)])


def charged(reading: Reading, workload: Workload, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
    """The requests, charged to the blocks of a reading."""
    if reading.baseline or SCHEDULE.rotation is None:
        return arrivals
    if reading.coarse:
        return charge_coarse_blocks(workload, arrivals, SCHEDULE.rotation)
    if not reading.static_everywhere:
        return arrivals
    return [
        arrival if "a1" in said["attributes"] else _always(arrival)
        for said, arrival in zip(workload.requests, arrivals, strict=True)
    ]


def _always(arrival: Arrival) -> Arrival:
    """The same request, charged to all of time."""
    (mechanism,) = arrival.mechanisms
    boxes = () if mechanism.region is None else mechanism.region.boxes
    region = region_from_boxes((*box[:-1], ALL_TIME) for box in boxes)
    return replace(arrival, mechanisms=(replace(mechanism, region=region),))


if __name__ == "__main__":
    main()
