"""Time of an allocation round with more requests, more rules and more partitions.

Prints CPU seconds per round with `efficient`, the memory of the process, and the number of selected
requests, on generated workloads at ε_t = 10. Requests: one, two and four times those of the paper
in S2. Rules: one, two, those of S2, and those of the whole policy set. Partitions besides slots and
cohorts: none, one and two, with a hundred values each, of which every request reads a random range;
two partitions take minutes and gigabytes. Each row runs in a separate process.
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
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    print(
        f"{'':34} {'requests/round':>14} {'rules kept':>10} {'s/round':>9} {'MB':>5} "
        f"{'selected':>8}"
    )
    for dimension, size in [*(("times the requests", n) for n in (1, 2, 4)), *RULES, *PARTITIONS]:
        with get_context("spawn").Pool(1) as pool:
            print(pool.apply(table_row, (dimension, size, options.rounds)), flush=True)


RULES = [("one rule", 0), ("S1", 0), ("S2", 0), ("whole", 0)]
PARTITIONS = [("more partitions", n) for n in (0, 1, 2)]


def table_row(dimension: str, size: int, rounds: int) -> str:
    """Run one size and return its row of the table."""
    make: Callable[[int], tuple[CompiledPolicy, Sequence[Arrival]]] = {
        "times the requests": scale_requests,
        "more partitions": scale_partitions,
    }.get(dimension, lambda _: scale_rules(dimension))
    policy, arrivals = make(size)
    arrivals = [arrival for arrival in arrivals if arrival.round in ROUNDS[:rounds]]
    simulation = Simulation(policy, STRATEGIES["efficient"], SCHEDULE, process_time)
    outcomes = list(simulation.run(arrivals, ROUNDS[:rounds]))
    seconds = sum(outcome.total_seconds for outcome in outcomes) / rounds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    selected = sum(len(outcome.selected) for outcome in outcomes)
    name = f"{size} {dimension}" if size or dimension == "more partitions" else dimension
    per_round = len(arrivals) / rounds
    return (
        f"{name:34} {per_round:14.0f} {policy.kept_count:10} {seconds:9.3f} {memory:5} {selected:8}"
    )


def scale_requests(count: int) -> tuple[CompiledPolicy, Sequence[Arrival]]:
    """Return S2 with the requests of several seeds, on the schema of the first seed."""
    workloads = [generate_workload("scope", seed) for seed in range(count)]
    requests = [
        {**request, "id": f"{seed}-{request['id']}"}
        for seed, workload in enumerate(workloads)
        for request in workload.requests
    ]
    combined = replace(workloads[0], requests=tuple(requests))
    policy = policy_for_workload(combined, TOTAL)
    return policy, resolve_arrivals(combined, policy)


def scale_rules(name: str) -> tuple[CompiledPolicy, Sequence[Arrival]]:
    """Return the workload and the policy set of the given name."""
    scenarios = {"one rule": "context", "S1": "context", "S2": "scope", "whole": "whole"}
    workload = generate_workload(scenarios[name], 0)
    policy = policy_for_workload(workload, TOTAL, baseline=name == "one rule")
    return policy, resolve_arrivals(workload, policy)


def scale_partitions(count: int) -> tuple[CompiledPolicy, Sequence[Arrival]]:
    """Return S1 with more partitions; a request reads a random range of each."""
    workload = generate_workload("context", 0)
    policy = _add_partitions(workload, count)
    rng = Random(0)
    return policy, [
        _draw_runs(arrival, count, rng) for arrival in resolve_arrivals(workload, policy)
    ]


def _add_partitions(workload: Workload, count: int) -> CompiledPolicy:
    accounting, schema, policies = policy_sources(
        workload, TOTAL, as_run=True, baseline=False, profile="classic"
    )
    extra = "".join(f"    p{n}: {{from: 0, to: {VALUES - 1}}}\n" for n in range(count))
    return compile_policy([accounting, Source("schema.yaml", schema.text + extra), policies])


def _draw_runs(arrival: Arrival, count: int, rng: Random) -> Arrival:
    (mechanism,) = arrival.mechanisms
    runs = [sorted(rng.sample(range(VALUES + 1), 2)) for _ in range(count)]
    sides = [(low, high) for low, high in runs]
    boxes = () if mechanism.region is None else mechanism.region.boxes
    region = region_from_boxes((*box[:2], *sides, box[-1]) for box in boxes)
    narrowed = mechanism if mechanism.region is None else replace(mechanism, region=region)
    return replace(arrival, mechanisms=(narrowed,))


if __name__ == "__main__":
    main()
