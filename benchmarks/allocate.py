"""Utility and time of the strategies on the paper's workloads.

Prints a row for each scenario, total budget, strategy and seed: utility over all rounds, sum of the
upper bounds of the rounds, gap between them, CPU seconds per round (building and charging, then
solving), memory of the process, and number of selected requests. Each row runs in a separate
process. `--seeds N` generates workloads from seeds 0 to N-1 (default 1) and prints mean utilities
and the gain of `price` over `efficient` by seed; `--workloads` reads the files of a directory
instead. `--quick` runs three rounds at one budget.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from time import process_time
from typing import NamedTuple

from dpolicy.allocation.simulation import Simulation
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.evaluation.workload import (
    ROUNDS,
    SCHEDULE,
    Workload,
    load_workload,
    policy_for_workload,
    resolve_arrivals,
)
from dpolicy.evaluation.workload_generator import generate_workload

SCENARIOS = ("context", "scope", "time")
TOTALS = (3, 5, 7, 10, 15, 20)

#: Strategy whose gain is printed, and the strategy that it is compared with.
BETTER, REFERENCE = "price", "efficient"


class Run(NamedTuple):
    """Parameters of one process; `source` is a seed or the directory of workload files."""

    scenario: str
    total: int
    strategy: str
    rounds: int
    baseline: bool
    source: int | Path


def main() -> None:
    """Print the table."""
    options = _parse_options()
    rounds = 3 if options.quick else options.rounds
    sources = [options.workloads] if options.workloads else list(range(options.seeds))
    print(
        f"{'scenario':9} {'ε_t':>4} {'strategy':11} {'seed':>4} {'utility':>9} {'bound':>9} "
        f"{'gap %':>6} {'build s':>8} {'solve s':>8} {'MB':>5} {'selected':>8}"
    )
    for scenario in options.scenario or SCENARIOS:
        for total in options.total or ([10] if options.quick else TOTALS):
            utilities: dict[str, list[float]] = {}
            for strategy in options.strategy or STRATEGIES:
                for source in sources:
                    run = Run(scenario, total, strategy, rounds, options.baseline, source)
                    with get_context("spawn").Pool(1) as pool:
                        utility, text = pool.apply(execute, (run,))
                    print(text, flush=True)
                    utilities.setdefault(strategy, []).append(utility)
            if not options.workloads:
                print("\n".join(summary(scenario, total, utilities)), flush=True)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three rounds, ε_t = 10")
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--total", type=int, choices=TOTALS, action="append")
    parser.add_argument("--strategy", choices=tuple(STRATEGIES), action="append")
    parser.add_argument("--rounds", type=int, default=len(ROUNDS))
    parser.add_argument("--baseline", action="store_true", help="one rule for everything")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds 0 to N-1")
    source.add_argument("--workloads", type=Path, metavar="DIRECTORY")
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error("--seeds needs at least 1")
    return options


def execute(run: Run) -> tuple[float, str]:
    """Return the utility of a run and its row of the table."""
    workload = load_run_workload(run)
    policy = policy_for_workload(workload, run.total, baseline=run.baseline)
    simulation = Simulation(policy, STRATEGIES[run.strategy], SCHEDULE, process_time)
    arrivals = resolve_arrivals(workload, policy)
    outcomes = list(simulation.run(arrivals, ROUNDS[: run.rounds]))
    utility, bound = sum(o.utility for o in outcomes), sum(o.bound for o in outcomes)
    building = sum(o.build_seconds + o.charge_seconds for o in outcomes) / run.rounds
    solving = sum(o.solve_seconds for o in outcomes) / run.rounds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    selected = sum(len(o.selected) for o in outcomes)
    seed = run.source if isinstance(run.source, int) else "file"
    return utility, (
        f"{run.scenario:9} {run.total:4} {run.strategy:11} {seed:>4} {utility:9.0f} {bound:9.0f} "
        f"{100 * (1 - utility / bound):6.2f} {building:8.3f} {solving:8.3f} {memory:5} "
        f"{selected:8}"
    )


def load_run_workload(run: Run) -> Workload:
    """Generate or read the workload of a run."""
    if isinstance(run.source, int):
        return generate_workload(run.scenario, run.source)
    return load_workload(run.source / f"{run.scenario}.json.gz")


def summary(scenario: str, total: int, utilities: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the mean utility of each strategy over the seeds, and the gain of `price`."""
    lines = [
        f"{scenario:9} {total:4} {strategy:11} mean {mean(values):9.0f}"
        for strategy, values in utilities.items()
    ]
    if BETTER in utilities and REFERENCE in utilities:
        pairs = zip(utilities[BETTER], utilities[REFERENCE], strict=True)
        gains = [100 * (better / reference - 1) for better, reference in pairs]
        each = " ".join(f"{gain:+.2f}" for gain in gains)
        lines.append(
            f"{scenario:9} {total:4} {BETTER} over {REFERENCE}, % by seed: {each}; "
            f"min {min(gains):+.2f}, mean {mean(gains):+.2f}"
        )
    return lines


if __name__ == "__main__":
    main()
