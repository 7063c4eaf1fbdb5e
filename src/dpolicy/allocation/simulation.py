"""Simulation of consecutive allocation rounds, in memory.

A round considers the requests that arrive and those that still wait: it builds the problem, solves
it and charges the selected requests. If cohorts rotate, a request is charged to the cohorts that
are active in the round that considers it. A simulation writes no ledger; it shows the effect of a
policy, a schedule and a strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpolicy.allocation.carried_prices import CarriedPrices
from dpolicy.allocation.problem.candidates import Candidate, demands_by_rule, make_candidate
from dpolicy.allocation.problem.knapsack import AllocationProblem, Solution
from dpolicy.allocation.problem.problem_builder import build_problem_on_steps, most_varied_axis
from dpolicy.allocation.problem.step_functions import SpentByRule
from dpolicy.allocation.strategies import Strategy
from dpolicy.allocation.unlocking import (
    ALL_UNLOCKED,
    CohortRotation,
    UnlockedShares,
    UnlockingSchedule,
    unlocked_shares_in_round,
)
from dpolicy.balances.enforced_policy import enforce
from dpolicy.balances.partition_space import PartitionSpace
from dpolicy.decisions.resolution import ResolvedMechanism
from dpolicy.errors import OperationRejected
from dpolicy.privacy.loss_arrays import loss_width
from dpolicy.releases.regions import NOWHERE, Interval, Region, region_intersection
from dpolicy.rules.compiler import CompiledPolicy

#: Clock that returns seconds since an arbitrary start.
Seconds = Callable[[], float]


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """Resolved release with its utility and the round in which it arrives."""

    id: str
    round: int
    utility: float
    mechanisms: tuple[ResolvedMechanism, ...]


@dataclass(frozen=True, slots=True)
class RoundSchedule:
    """Cohort rotation, unlocking, and waiting time of requests.

    `max_wait_rounds` is the number of rounds that consider a request; with 1 it does not wait.
    """

    rotation: CohortRotation | None = None
    unlocking: UnlockingSchedule | None = None
    max_wait_rounds: int = 1


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """Result of one simulated round.

    `considered` requests took part; `feasible_alone` is the number of those that fit alone.
    """

    number: int
    considered: int
    feasible_alone: int
    selected: tuple[str, ...]
    utility: float
    bound: float
    gap: float
    rows: int
    build_seconds: float
    solve_seconds: float
    charge_seconds: float

    @property
    def total_seconds(self) -> float:
        """Return the total time of the round."""
        return self.build_seconds + self.solve_seconds + self.charge_seconds


class Simulation:
    """Consecutive rounds; each starts from the balances of the previous one.

    `spent` is None before the first round.
    """

    def __init__(
        self,
        policy: CompiledPolicy,
        strategy: Strategy,
        schedule: RoundSchedule,
        clock: Seconds = lambda: 0.0,
    ) -> None:
        self.policy, self.strategy, self.schedule, self._clock = policy, strategy, schedule, clock
        self.enforced = enforce(policy)
        self.section = self.enforced.cumulative
        self._waiting: list[Arrival] = []
        self.cohort_axis = find_cohort_axis(self.enforced.space, schedule.rotation)
        self.spent: SpentByRule | None = None
        self.carried_prices = CarriedPrices.empty(len(self.section.full_extent))

    def run(self, arrivals: Iterable[Arrival], rounds: Iterable[int]) -> Iterator[RoundOutcome]:
        """Run the rounds one after the other and yield their outcomes."""
        by_round: dict[int, list[Arrival]] = {}
        for arrival in arrivals:
            by_round.setdefault(arrival.round, []).append(arrival)
        for number in rounds:
            yield self.run_round(number, by_round.get(number, ()))

    def run_round(self, number: int, arrivals: Sequence[Arrival]) -> RoundOutcome:
        """Select among waiting and arriving requests, and charge the selected ones."""
        started = self._clock()
        section = self.section
        considered = [*self._waiting, *arrivals]
        candidates = [self.candidate_for_round(arrival, number) for arrival in considered]
        demands = demands_by_rule(section.granularities, candidates)
        unlocked = self._unlocked_shares(number)
        if self.spent is None:
            axis = most_varied_axis(demands, unlocked, len(section.full_extent))
            self.spent = SpentByRule(section.full_extent, axis, loss_width(section.certificates))
        problem = build_problem_on_steps(section, self.spent, candidates, demands, unlocked)
        costs = self.carried_prices.opportunity_costs(
            section, demands, len(candidates), self.cohort_axis
        )
        problem = replace(problem, opportunity_costs=costs)
        built = self._clock()
        solution = self.strategy(problem)
        if len(solution.prices):
            self.carried_prices = self.carried_prices.with_round(problem, solution)
        solved = self._clock()
        for rule, demand in demands.items():
            charged = demand.restrict_to(solution.selected)
            if charged is not None:
                self.spent.charge(rule, charged)
        self._waiting = [
            arrival
            for arrival, selected in zip(considered, solution.selected.tolist(), strict=True)
            if not selected and number - arrival.round + 1 < self.schedule.max_wait_rounds
        ]
        times = built - started, solved - built, self._clock() - solved
        return _make_outcome(number, problem, solution, times)

    @property
    def rules_without_cohorts(self) -> tuple[str, ...]:
        """Return the names of enforced rules that are not partitioned by cohort.

        Unlocking does not apply to them.
        """
        if self.cohort_axis is None or self.schedule.unlocking is None:
            return ()
        granularities, compiled = self.section.granularities, self.section.compiled
        names = []
        for number in compiled.pruning.kept.nonzero()[0].tolist():
            granularity = granularities.for_rule(number)
            if self.cohort_axis not in granularity.partitions:
                names.append(compiled.rules[number].name)
        return tuple(names)

    def candidate_for_round(self, arrival: Arrival, number: int) -> Candidate:
        """Make a candidate of an arrival, restricted to the active cohorts of a round."""
        mechanisms = arrival.mechanisms
        if self.cohort_axis is not None and self.schedule.rotation is not None:
            active = self.schedule.rotation.active_cohorts(number)
            space, axis = self.section.full_extent, self.cohort_axis
            mechanisms = tuple(
                replace(m, region=restrict_axis(m.region, space, axis, active)) for m in mechanisms
            )
        if any(m.region == NOWHERE for m in mechanisms):
            reason = "a mechanism selects no active cohort"
            return Candidate(arrival.id, arrival.utility, (), (reason,))
        return make_candidate(self.enforced, arrival.id, arrival.utility, mechanisms)

    def _unlocked_shares(self, number: int) -> UnlockedShares:
        rotation, unlocking = self.schedule.rotation, self.schedule.unlocking
        if self.cohort_axis is None or rotation is None or unlocking is None:
            return ALL_UNLOCKED
        return unlocked_shares_in_round(number, self.cohort_axis, rotation, unlocking)


def find_cohort_axis(space: PartitionSpace, rotation: CohortRotation | None) -> int | None:
    """Return the axis of the cohorts; None without rotation.

    Raise `OperationRejected` if the partition of the cohorts has no range.
    """
    if rotation is None:
        return None
    for position, axis in enumerate(space.axes):
        if axis.name == rotation.partition and not axis.values:
            return position
    raise OperationRejected(
        f"`{rotation.partition}` is not a partition with a range and cannot number cohorts"
    )


def restrict_axis(
    region: Region | None, space: tuple[Interval, ...], axis: int, cohorts: Interval
) -> Region:
    """Restrict a region to cohorts on one axis; None is the whole space.

    Raise `OperationRejected` if no cohort lies in the partition.
    """
    low, high = max(cohorts[0], space[axis][0]), min(cohorts[1], space[axis][1])
    if low >= high:
        raise OperationRejected(
            f"no cohort from {cohorts[0]} to {cohorts[1] - 1} lies in its partition"
        )
    slab = (*space[:axis], (low, high), *space[axis + 1 :])
    if region is None:
        return Region((slab,))
    if all(box[axis] == space[axis] for box in region.boxes):
        boxes = ((*box[:axis], (low, high), *box[axis + 1 :]) for box in region.boxes)
        return Region(tuple(boxes))
    return region_intersection(region, Region((slab,)))


def _make_outcome(
    number: int, problem: AllocationProblem, solution: Solution, times: tuple[float, float, float]
) -> RoundOutcome:
    return RoundOutcome(
        number=number,
        considered=len(problem.ids),
        feasible_alone=int(problem.fits_alone.sum()),
        selected=tuple(problem.ids[n] for n in np.flatnonzero(solution.selected).tolist()),
        utility=solution.utility(problem),
        bound=solution.bound,
        gap=solution.gap(problem),
        rows=len(problem.rows),
        build_seconds=times[0],
        solve_seconds=times[1],
        charge_seconds=times[2],
    )
