"""Upper bound over all rounds of a run, if all requests were known in advance, beside `price`.

Prints for each scenario and total budget the bound over all rounds and the utility that `price`
reaches, for the workload of one seed or for the workload files of a directory.

The bound: in every block of every rule, the selected requests of every span of rounds must fit into
the budget that a cohort which joins in the first round of the span has unlocked in the last. If
they fit at one certificate, then the shares that the requests use, each at its own best
certificate, add up to at most the unlocked share. The bound is loose, but valid: it samples blocks,
lets every request use its own certificate, and allows fractional selection.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import process_time

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.carried_prices import budget_shares, largest_shares
from dpolicy.allocation.problem.candidates import Candidate, demands_by_rule
from dpolicy.allocation.simulation import Arrival, RoundSchedule, Simulation
from dpolicy.allocation.solving.constraint_matrix import IndexArray
from dpolicy.allocation.solving.highs import LinearModel
from dpolicy.allocation.solving.utilisation import Floats
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.errors import OperationRejected
from dpolicy.evaluation.workload import (
    ROUNDS,
    SCHEDULE,
    load_workload,
    policy_for_workload,
    resolve_arrivals,
)
from dpolicy.evaluation.workload_generator import generate_workload
from dpolicy.rules.compiler import CompiledPolicy

SCENARIOS = ("context", "scope", "time")
TOTALS = (3, 5, 7, 10, 15, 20)

#: Constraints added per iteration, number of iterations, and relative improvement that stops them.
_CONSTRAINTS, _ITERATIONS, _MIN_IMPROVEMENT = 400, 40, 2e-4
#: Violation that is tolerated before a constraint is added, and factor for the float error of sums.
_TOLERANCE, _MARGIN = 1e-3, 1 + 1e-7

#: Rule, block and span of a constraint.
_Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Demand:
    """Shares of one rule's budget that requests use in blocks, requests × blocks."""

    requests: IndexArray
    shares: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Spans of rounds (`last` is inclusive) and the budget share that each span may use."""

    first: IndexArray
    last: IndexArray
    limits: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Requests:
    """Utility and arrival round (from 0) of every request, with the demands by rule."""

    utilities: Floats
    rounds: IndexArray
    demands: Mapping[int, _Demand]


def hindsight_upper_bound(
    policy: CompiledPolicy,
    schedule: RoundSchedule,
    arrivals: Iterable[Arrival],
    rounds: range,
    blocks: int = 100,
) -> float:
    """Return the bound for a run in which every request is considered once.

    `blocks` is the number of sampled blocks per rule. Raise `OperationRejected` if requests wait
    for more than one round.
    """
    if schedule.max_wait_rounds != 1:
        raise OperationRejected(
            "the hindsight bound is valid only if each request is considered once"
        )
    requests = sorted((a for a in arrivals if a.round in rounds), key=lambda a: a.round)
    simulation = Simulation(policy, STRATEGIES["first-come"], schedule)
    candidates = [simulation.candidate_for_round(arrival, arrival.round) for arrival in requests]
    utilities = np.array([0.0 if c.rejection_reasons else c.utility for c in candidates])
    arrival_rounds = np.array([arrival.round - rounds.start for arrival in requests], np.intp)
    demands = _demands(simulation, candidates, blocks)
    return _solve(_Requests(utilities, arrival_rounds, demands), active_spans(schedule, rounds))


def _demands(
    simulation: Simulation, candidates: Sequence[Candidate], blocks: int
) -> Mapping[int, _Demand]:
    """Return the demands by rule, in blocks in which sampled requests start."""
    section, random = simulation.section, Random(0)
    demands = {}
    for rule, demand in demands_by_rule(section.granularities, candidates).items():
        count = len(demand.item_of_box)
        boxes = sorted(random.sample(range(count), min(blocks, count)))
        shares = budget_shares(section, rule, demand)
        used = largest_shares(demand, shares, demand.low[:, boxes].T, simulation.cohort_axis)
        demands[rule] = _Demand(np.unique(demand.owner), used)
    return demands


def active_spans(schedule: RoundSchedule, rounds: range) -> Spans:
    """Return every span in which one cohort is active; without rotation, spans of the whole run."""
    count = len(rounds)
    active = schedule.rotation.active if schedule.rotation else count
    share = schedule.unlocking.share if schedule.unlocking else lambda age: 1
    pairs = [(a, b) for a in range(count) for b in range(a, min(a + active, count))]
    return Spans(
        np.array([a for a, _ in pairs], np.intp),
        np.array([b for _, b in pairs], np.intp),
        np.array([float(share(b - a + 1)) for a, b in pairs]),
    )


def _solve(requests: _Requests, spans: Spans) -> float:
    """Solve the linear programme; return the bound that its dual prices prove (upper_bound.py)."""
    utilities = requests.utilities
    model = LinearModel(utilities, utilities > 0)
    x = (utilities > 0).astype(np.float64)
    constraints: list[Floats] = []
    limits: list[float] = []
    added: set[_Key] = set()
    prices, value = np.empty(0), np.inf
    for _ in range(_ITERATIONS):
        violated = _find_violated(x, requests, spans)
        keys = [key for key in violated if key not in added][:_CONSTRAINTS]
        if not keys:
            break
        added.update(keys)
        new = np.stack([_constraint(key, requests, spans) for key in keys])
        new_limits = [float(spans.limits[span]) for _, _, span in keys]
        model.add_constraints(new, np.array(new_limits))
        constraints, limits = [*constraints, *new], [*limits, *new_limits]
        result, previous = model.solve_relaxed(), value
        x, prices, value = result.x, result.prices, result.bound
        if previous - value <= _MIN_IMPROVEMENT * value:
            break
    paid = prices @ np.stack(constraints) if constraints else np.zeros(len(utilities))
    surplus = np.maximum(utilities - paid, 0).sum()
    return float(prices @ np.array(limits) + surplus) * _MARGIN


def _find_violated(x: Floats, requests: _Requests, spans: Spans) -> list[_Key]:
    """Return the most violated span of each block, the worst violation first."""
    violations = []
    count = int(spans.last.max()) + 1
    for rule, demand in requests.demands.items():
        by_round = np.zeros((count, demand.shares.shape[1]))
        arrival_rounds = requests.rounds[demand.requests]
        np.add.at(by_round, arrival_rounds, demand.shares * x[demand.requests][:, None])
        sums = np.concatenate([np.zeros((1, by_round.shape[1])), np.cumsum(by_round, axis=0)])
        utilisation = (sums[spans.last + 1] - sums[spans.first]) / spans.limits[:, None]
        for block, span in enumerate(utilisation.argmax(axis=0).tolist()):
            if utilisation[span, block] > 1 + _TOLERANCE:
                violations.append((float(utilisation[span, block]), rule, block, span))
    return [(rule, block, span) for _, rule, block, span in sorted(violations, reverse=True)]


def _constraint(key: _Key, requests: _Requests, spans: Spans) -> Floats:
    """Return the share of a block that each request uses in a span."""
    rule, block, span = key
    demand, shares = requests.demands[rule], np.zeros(len(requests.utilities))
    rounds = requests.rounds[demand.requests]
    inside: NDArray[np.bool_] = (spans.first[span] <= rounds) & (rounds <= spans.last[span])
    shares[demand.requests[inside]] = demand.shares[inside, block]
    return shares


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=Path, metavar="DIRECTORY")
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--total", type=int, choices=TOTALS, action="append")
    parser.add_argument("--blocks", type=int, default=500, help="sampled blocks per rule")
    options = parser.parse_args()
    print(f"{'scenario':9} {'ε_t':>4} {'price':>9} {'bound':>9} {'reached %':>9} {'bound s':>8}")
    for scenario in options.scenario or SCENARIOS:
        file = options.workloads and options.workloads / f"{scenario}.json.gz"
        workload = load_workload(file) if file else generate_workload(scenario, 0)
        for total in options.total or TOTALS:
            policy = policy_for_workload(workload, total)
            arrivals = resolve_arrivals(workload, policy)
            simulation = Simulation(policy, STRATEGIES["price"], SCHEDULE)
            utility = sum(o.utility for o in simulation.run(arrivals, ROUNDS))
            start = process_time()
            bound = hindsight_upper_bound(policy, SCHEDULE, arrivals, ROUNDS, options.blocks)
            seconds = process_time() - start
            print(
                f"{scenario:9} {total:4} {utility:9.0f} {bound:9.0f} "
                f"{100 * utility / bound:9.1f} {seconds:8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
