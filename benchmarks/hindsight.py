"""How much there is to gain over rounds: the bound over the whole run, had all been known.

Prints for each scenario and total budget the bound over all rounds at once (loose: some blocks,
every request at its own best certificate, in parts) and what `price` reaches, from one seed, or of
the workload files of a directory.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time

from dpolicy.allocation.simulation import Simulation
from dpolicy.allocation.solving.hindsight_bound import hindsight_upper_bound
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.evaluation.workload import (
    ROUNDS,
    SCHEDULE,
    load_workload,
    policy_for_workload,
    resolve_arrivals,
)
from dpolicy.evaluation.workload_generator import generate_workload

SCENARIOS = ("context", "scope", "time")
TOTALS = (3, 5, 7, 10, 15, 20)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=Path, metavar="DIRECTORY")
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--total", type=int, choices=TOTALS, action="append")
    parser.add_argument("--blocks", type=int, default=500)
    said = parser.parse_args()
    print(f"{'scenario':9} {'ε_t':>4} {'price':>9} {'bound':>9} {'reached %':>9} {'bound s':>8}")
    for scenario in said.scenario or SCENARIOS:
        file = said.workloads and said.workloads / f"{scenario}.json.gz"
        workload = load_workload(file) if file else generate_workload(scenario, 0)
        for total in said.total or TOTALS:
            policy = policy_for_workload(workload, total)
            arrivals = resolve_arrivals(workload, policy)
            simulation = Simulation(policy, STRATEGIES["price"], SCHEDULE)
            utility = sum(o.utility for o in simulation.run(arrivals, ROUNDS))
            start = process_time()
            bound = hindsight_upper_bound(policy, SCHEDULE, arrivals, ROUNDS, said.blocks)
            lap = process_time() - start
            print(
                f"{scenario:9} {total:4} {utility:9.0f} {bound:9.0f} "
                f"{100 * utility / bound:9.1f} {lap:8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
