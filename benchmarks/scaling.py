"""How long a round takes as there are more requests, more rules and more partitions.

Prints CPU seconds a round with `efficient`, the memory of the process, and how much was accepted,
on generated workloads at ε_t = 10: one, two and four times the requests of the paper in S2; one
rule, two, and those of S2 and of the whole policy set; and no, one and two partitions besides slots
and cohorts, of a hundred values each, of which every request takes a random run: two take minutes
and gigabytes. Each line is a process of its own.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import get_context
from random import Random
from time import process_time

from dpolicy.allocation.simulation import Arrival, Simulation
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.evaluation.workload import (
    ROUNDS,
    SCHEDULE,
    Workload,
    policy_for_workload,
    policy_sources,
    resolve_arrivals,
)
from dpolicy.evaluation.workload_generator import generate_workload
from dpolicy.releases.regions import region_from_boxes
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

TOTAL = 10
VALUES = 100


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    said = parser.parse_args()
    print(f"{'':34} {'asked a round':>13} {'rules kept':>10} {'s a round':>9} {'MB':>5} {'won':>5}")
    for what, size in [*(("times the requests", n) for n in (1, 2, 4)), *RULES, *PARTITIONS]:
        with get_context("spawn").Pool(1) as alone:
            print(alone.apply(line, (what, size, said.rounds)), flush=True)


RULES = [("one rule", 0), ("S1", 0), ("S2", 0), ("whole", 0)]
PARTITIONS = [("more partitions", n) for n in (0, 1, 2)]


def line(what: str, size: int, rounds: int) -> str:
    """The line of one size."""
    make: Callable[[int], tuple[CompiledPolicy, Sequence[Arrival]]] = {
        "times the requests": of_requests,
        "more partitions": of_partitions,
    }.get(what, lambda _: of_rules(what))
    policy, arrivals = make(size)
    arrivals = [arrival for arrival in arrivals if arrival.round in ROUNDS[:rounds]]
    simulation = Simulation(policy, STRATEGIES["efficient"], SCHEDULE, process_time)
    outcomes = list(simulation.run(arrivals, ROUNDS[:rounds]))
    seconds = sum(outcome.total_seconds for outcome in outcomes) / rounds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    won = sum(len(outcome.selected) for outcome in outcomes)
    shown = f"{size} {what}" if size or what == "more partitions" else what
    asked = len(arrivals) / rounds
    return f"{shown:34} {asked:13.0f} {policy.kept_count:10} {seconds:9.3f} {memory:5} {won:5}"


def of_requests(times: int) -> tuple[CompiledPolicy, Sequence[Arrival]]:
    """S2 with the requests of several seeds at once, on the schema of the first."""
    workloads = [generate_workload("scope", seed) for seed in range(times)]
    requests = [
        {**said, "id": f"{seed}-{said['id']}"}
        for seed, workload in enumerate(workloads)
        for said in workload.requests
    ]
    together = replace(workloads[0], requests=tuple(requests))
    policy = policy_for_workload(together, TOTAL)
    return policy, resolve_arrivals(together, policy)


def of_rules(name: str) -> tuple[CompiledPolicy, Sequence[Arrival]]:
    """The same requests under a larger and larger policy set."""
    scenarios = {"one rule": "context", "S1": "context", "S2": "scope", "whole": "whole"}
    workload = generate_workload(scenarios[name], 0)
    policy = policy_for_workload(workload, TOTAL, baseline=name == "one rule")
    return policy, resolve_arrivals(workload, policy)


def of_partitions(more: int) -> tuple[CompiledPolicy, Sequence[Arrival]]:
    """S1 with more partitions, of each of which a request takes a random run."""
    workload = generate_workload("context", 0)
    policy = _with_partitions(workload, more)
    rng = Random(0)
    return policy, [_narrower(arrival, more, rng) for arrival in resolve_arrivals(workload, policy)]


def _with_partitions(workload: Workload, more: int) -> CompiledPolicy:
    accounting, schema, policies = policy_sources(
        workload, TOTAL, as_run=True, baseline=False, profile="classic"
    )
    extra = "".join(f"    p{n}: {{from: 0, to: {VALUES - 1}}}\n" for n in range(more))
    return compile_policy([accounting, Source("schema.yaml", schema.text + extra), policies])


def _narrower(arrival: Arrival, more: int, rng: Random) -> Arrival:
    (mechanism,) = arrival.mechanisms
    runs = [sorted(rng.sample(range(VALUES + 1), 2)) for _ in range(more)]
    sides = [(low, high) for low, high in runs]
    boxes = () if mechanism.region is None else mechanism.region.boxes
    region = region_from_boxes((*box[:2], *sides, box[-1]) for box in boxes)
    narrowed = mechanism if mechanism.region is None else replace(mechanism, region=region)
    return replace(arrival, mechanisms=(narrowed,))


if __name__ == "__main__":
    main()
