"""Variants of scenario S3, compared with the published bars of the paper.

For each variant and total budget, the script prints the utility and the costliest user-month on
data that has a time, beside the bars of DPolicy or of the baseline. Variants differ in the share of
requests that read such data, in the blocks that a cohort tracks (every month, or past, four months
and future), in what the budget of a month covers (such data, or everything), and in whether static
requests are charged to the month that they name or to every month.
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
class Variant:
    """Variant of the scenario; if `timed` is None, the labels of the workload do not change."""

    name: str
    timed: float | None = None
    coarse: bool = True
    everything: bool = False
    static_everywhere: bool = False
    baseline: bool = False


VARIANTS = (
    Variant("every month", coarse=False),
    Variant("past, four months, future (as run)"),
    Variant("as run, two thirds timed", 2 / 3),
    Variant("as run, 70 % timed", 0.7),
    Variant("as run, three quarters timed", 0.75),
    Variant("as run, 80 % timed", 0.8),
    Variant("as run, budget for everything", everything=True),
    Variant("every month, budget for everything", coarse=False, everything=True),
    Variant("the same, static in every month", None, False, True, True),
    Variant("baseline, half timed", baseline=True),
    Variant("baseline, three quarters timed", 0.75, baseline=True),
)


def main() -> None:
    """Print a row for each variant and total budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total", type=int, choices=TOTALS, action="append")
    parser.add_argument(
        "--variant", type=int, action="append", help="number of the variant, from 0"
    )
    options = parser.parse_args()
    print(f"{'variant':36} {'ε_t':>3} {'utility':>8} {'bar':>6} {'%':>6} {'month':>6} {'bar':>5}")
    for number in options.variant or range(len(VARIANTS)):
        for total in options.total or TOTALS:
            print(table_row(VARIANTS[number], total), flush=True)


def table_row(variant: Variant, total: int) -> str:
    """Run a variant at a total budget and return its row of the table."""
    system = BASELINE if variant.baseline else OURS
    run = EvaluationRun("S3", total, system, "efficient", timed=variant.timed)
    workload = workload_for(run)
    policy = policy_for_variant(variant, run, workload)
    arrivals = charge_variant_blocks(variant, workload, resolve_arrivals(workload, policy))
    simulation = Simulation(policy, STRATEGIES[run.strategy], SCHEDULE)
    outcomes = list(simulation.run(arrivals, ROUNDS))
    utility = sum(outcome.utility for outcome in outcomes)
    spent, _ = measure_spending(run, workload, {name for o in outcomes for name in o.selected})
    bar = published_value("S3", system, "utility", total) or 0
    month = published_value("S3", system, "month", total) or 0
    return (
        f"{variant.name:36} {total:3} {utility / 1e6:8.3f} {bar / 1e6:6.2f} "
        f"{100 * (utility / bar - 1):+6.1f} {spent['month']:6.2f} {month:5.2f}"
    )


def policy_for_variant(variant: Variant, run: EvaluationRun, workload: Workload) -> CompiledPolicy:
    """Return the policy of the scenario; the budget of a month can cover everything."""
    if not variant.everything:
        return policy_for(run, workload)
    sources = policy_sources(workload, run.total, as_run=True, baseline=False, profile="classic")
    text = sources[-1].text.replace("when: '\"a1\" in attributes'", "when: always")
    return compile_policy([*sources[:-1], Source("policies.yaml", text)])


def charge_variant_blocks(
    variant: Variant, workload: Workload, arrivals: Sequence[Arrival]
) -> Sequence[Arrival]:
    """Return the requests, charged to the blocks of the variant."""
    if variant.baseline or SCHEDULE.rotation is None:
        return arrivals
    if variant.coarse:
        return charge_coarse_blocks(workload, arrivals, SCHEDULE.rotation)
    if not variant.static_everywhere:
        return arrivals
    return [
        arrival if "a1" in request["attributes"] else _charge_all_time(arrival)
        for request, arrival in zip(workload.requests, arrivals, strict=True)
    ]


def _charge_all_time(arrival: Arrival) -> Arrival:
    """Return a copy of the request that is charged to all time blocks."""
    (mechanism,) = arrival.mechanisms
    boxes = () if mechanism.region is None else mechanism.region.boxes
    region = region_from_boxes((*box[:-1], ALL_TIME) for box in boxes)
    return replace(arrival, mechanisms=(replace(mechanism, region=region),))


if __name__ == "__main__":
    main()
