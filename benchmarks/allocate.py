"""What strategies make of the paper's workloads, and how long a round takes.

Prints a line for each scenario, total budget and strategy: utility over all rounds, the sum of the
bounds of its rounds, how far below it stayed, CPU seconds a round (building and charging, then
choosing), the memory of the process, and how many requests were accepted. Each line is a process of
its own. `--workloads` is the directory of their files; `--quick` runs three rounds at one budget.
"""

from __future__ import annotations

import argparse
import resource
from multiprocessing import get_context
from pathlib import Path
from time import process_time

from dpolicy.allocation.rounds import Simulation
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.evaluation.workload import (
    ROUNDS,
    SCHEDULE,
    arrivals_of,
    load_workload,
    policy_of,
)

WORKLOADS = Path("workloads")
SCENARIOS = ("context", "scope", "time")
TOTALS = (3, 5, 7, 10, 15, 20)

#: Scenario, total budget, strategy, rounds, whether it is the baseline, where the workloads are.
Run = tuple[str, int, str, int, bool, Path]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three rounds, ε_t = 10")
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--total", type=int, choices=TOTALS, action="append")
    parser.add_argument("--strategy", choices=tuple(STRATEGIES), action="append")
    parser.add_argument("--rounds", type=int, default=len(ROUNDS))
    parser.add_argument("--baseline", action="store_true", help="one rule for everything")
    parser.add_argument("--workloads", type=Path, default=WORKLOADS)
    said = parser.parse_args()
    rounds = 3 if said.quick else said.rounds
    totals = said.total or ([10] if said.quick else list(TOTALS))
    print(
        f"{'scenario':9} {'ε_t':>4} {'strategy':11} {'utility':>9} {'bound':>9} {'gap %':>6} "
        f"{'build s':>8} {'choose s':>8} {'MB':>5} {'accepted':>8}"
    )
    for scenario in said.scenario or SCENARIOS:
        for total in totals:
            for strategy in said.strategy or STRATEGIES:
                run = (scenario, total, strategy, rounds, said.baseline, said.workloads)
                with get_context("spawn").Pool(1) as alone:
                    print(alone.apply(line, (run,)), flush=True)


def line(run: Run) -> str:
    """One line of the table."""
    scenario, total, strategy, rounds, baseline, where = run
    workload = load_workload(where / f"{scenario}.json.gz")
    policy = policy_of(workload, total, baseline=baseline)
    simulation = Simulation(policy, STRATEGIES[strategy], SCHEDULE, process_time)
    arrivals = arrivals_of(workload, policy)
    outcomes = list(simulation.run(arrivals, ROUNDS[:rounds]))
    utility, bound = sum(o.utility for o in outcomes), sum(o.bound for o in outcomes)
    building = sum(o.building + o.charging for o in outcomes) / rounds
    choosing = sum(o.choosing for o in outcomes) / rounds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    accepted = sum(len(o.accepted) for o in outcomes)
    return (
        f"{scenario:9} {total:4} {strategy:11} {utility:9.0f} {bound:9.0f} "
        f"{100 * (1 - utility / bound):6.2f} {building:8.3f} {choosing:8.3f} {memory:5} "
        f"{accepted:8}"
    )


if __name__ == "__main__":
    main()
