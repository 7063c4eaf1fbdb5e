"""Utility of the paper's scenarios under `anchored`, the default profile, against `classic`.

The first table has the gain of `anchored` over `classic` on generated workloads, as the mean over
the seeds and the smallest gain in brackets. The second one compares `price` under `anchored` with
the published utilities of DPolicy in S1 and S2, on the bundled workloads.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from statistics import mean

from dpolicy.evaluation.comparison import MILLION, UTILITY, published_value
from dpolicy.evaluation.experiment import OURS, PUBLISHED, EvaluationRun, run_all
from dpolicy.evaluation.workload import TOTALS

PROFILES = ("classic", "anchored")


def main() -> None:
    """Print both tables, each row when its runs are complete."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds 0 to N-1")
    parser.add_argument("--total", type=int, choices=TOTALS, action="append")
    parser.add_argument("--strategy", action="append", help="default: efficient and price")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    strategies = options.strategy or ["efficient", "price"]
    print(f"gain of `anchored` over `classic`, % (seeds: {options.seeds})")
    for row in gains(options.total or [5, 10, 20], strategies, options.seeds, options.processes):
        print(row, flush=True)
    print("\n`price` under `anchored` against the published utility")
    for row in published_rows(options.processes):
        print(row, flush=True)


def gains(
    totals: Sequence[int], strategies: Sequence[str], seeds: int, processes: int
) -> Iterator[str]:
    """Yield one row for each scenario, strategy and total budget."""
    for scenario, strategy, total in product(PUBLISHED, strategies, totals):
        runs = [
            EvaluationRun(scenario, total, OURS, strategy, seed, profile=profile)
            for profile, seed in product(PROFILES, range(seeds))
        ]
        utilities = {result.run: result.utility for result in run_all(runs, processes)}
        classic, anchored = ([utilities[r] for r in runs if r.profile == p] for p in PROFILES)
        change = [100 * (new / old - 1) for old, new in zip(classic, anchored, strict=True)]
        each = " ".join(f"{gain:+.2f}" for gain in change)
        summary = f"{mean(change):+.2f} ({min(change):+.2f})"
        yield f"{scenario} {strategy:10} ε_t {total:2}  {summary}  by seed {each}"


def published_rows(processes: int) -> Iterator[str]:
    """Yield one row for each published utility of DPolicy in S1 and S2."""
    runs = [
        EvaluationRun(scenario, total, OURS, "price", profile="anchored")
        for scenario, total in product(("S1", "S2"), TOTALS)
    ]
    utilities = {result.run: result.utility for result in run_all(runs, processes)}
    for run in runs:
        paper = published_value(run.scenario, OURS, UTILITY, run.total)
        if paper is not None:
            deviation = f"{100 * (utilities[run] / paper - 1):+.1f} %"
            values = f"{utilities[run] / MILLION:.3f} M, published {paper / MILLION:.2f} M"
            yield f"{run.scenario} ε_t {run.total:2}  {values}, {deviation}"


if __name__ == "__main__":
    main()
