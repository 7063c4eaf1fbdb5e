"""Arriving requests → rounds: build, choose, charge, and on to the next; all in memory.

A round considers what arrived and what still waits. Where cohorts rotate, a request asks for the
cohorts that are active in the round that considers it. Nothing is written anywhere: a simulation
shows what a policy, a schedule and a strategy would do.
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

#: Seconds, from whenever.
Seconds = Callable[[], float]


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A resolved release, the round it arrives in, and its worth."""

    id: str
    round: int
    utility: float
    mechanisms: tuple[ResolvedMechanism, ...]


@dataclass(frozen=True, slots=True)
class RoundSchedule:
    """Which cohorts a round reaches and how much of their budgets; how long requests wait.

    `patience` is how many rounds consider a request: with 1 it has one chance.
    """

    rotation: CohortRotation | None = None
    unlocking: UnlockingSchedule | None = None
    max_wait_rounds: int = 1


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What became of a round; `building` and `choosing` are seconds."""

    number: int
    considered: int
    fitting: int
    accepted: tuple[str, ...]
    utility: float
    bound: float
    gap: float
    rows: int
    build_seconds: float
    solve_seconds: float
    charge_seconds: float

    @property
    def total_seconds(self) -> float:
        """All that the round took."""
        return self.build_seconds + self.solve_seconds + self.charge_seconds


class Simulation:
    """Rounds that follow each other on the balances of the ones before."""

    def __init__(
        self,
        policy: CompiledPolicy,
        strategy: Strategy,
        schedule: RoundSchedule,
        clock: Seconds = lambda: 0.0,
    ) -> None:
        self.policy, self.strategy, self.schedule, self._clock = policy, strategy, schedule, clock
        self.enforced = enforce(policy)
        self.of = self.enforced.cumulative
        self._waiting: list[Arrival] = []
        self.cohorts = find_cohort_axis(self.enforced.space, schedule.rotation)
        self.tracks: SpentByRule | None = None
        self.market = CarriedPrices.empty(len(self.of.full_extent))

    def run(self, arrivals: Iterable[Arrival], rounds: Iterable[int]) -> Iterator[RoundOutcome]:
        """The outcome of each round, one after the other."""
        by_round: dict[int, list[Arrival]] = {}
        for arrival in arrivals:
            by_round.setdefault(arrival.round, []).append(arrival)
        for number in rounds:
            yield self.run_round(number, by_round.get(number, ()))

    def run_round(self, number: int, arriving: Sequence[Arrival]) -> RoundOutcome:
        """One round: what waits and what arrives competes, and the winners are charged."""
        started = self._clock()
        considered = [*self._waiting, *arriving]
        candidates = [self.candidate_for_round(arrival, number) for arrival in considered]
        asked = demands_by_rule(self.of.granularities, candidates)
        unlocked = self._unlocked(number)
        if self.tracks is None:
            axis = most_varied_axis(asked, unlocked, len(self.of.full_extent))
            self.tracks = SpentByRule(self.of.full_extent, axis, loss_width(self.of.certificates))
        problem = build_problem_on_steps(self.of, self.tracks, candidates, asked, unlocked)
        later = self.market.opportunity_costs(self.of, asked, len(candidates), self.cohorts)
        problem = replace(problem, opportunity_costs=later)
        built = self._clock()
        allocation = self.strategy(problem)
        if len(allocation.prices):
            self.market = self.market.with_round(problem, allocation)
        chosen = self._clock()
        for rule, wanted in asked.items():
            won = wanted.restricted_to(allocation.selected)
            if won is not None:
                self.tracks.charge(rule, won)
        self._waiting = [
            arrival
            for arrival, wins in zip(considered, allocation.selected.tolist(), strict=True)
            if not wins and number - arrival.round + 1 < self.schedule.max_wait_rounds
        ]
        times = built - started, chosen - built, self._clock() - chosen
        return _outcome(number, problem, allocation, times)

    @property
    def rules_without_cohorts(self) -> tuple[str, ...]:
        """The rules that all cohorts share: a schedule does not hold any of their budgets back."""
        if self.cohorts is None or self.schedule.unlocking is None:
            return ()
        layout, rules = self.of.granularities, self.of.compiled.rules
        kept = self.of.compiled.pruning.kept.nonzero()[0].tolist()
        shared = (
            n for n in kept if self.cohorts not in layout.frames[layout.frame_of[n]].partitions
        )
        return tuple(rules[number].name for number in shared)

    def candidate_for_round(self, arrival: Arrival, number: int) -> Candidate:
        """An arrival as a candidate of a round, for the cohorts that are active then."""
        mechanisms = arrival.mechanisms
        if self.cohorts is not None and self.schedule.rotation is not None:
            active = self.schedule.rotation.active_cohorts(number)
            mechanisms = tuple(
                replace(
                    m, region=restrict_axis(m.region, self.of.full_extent, self.cohorts, active)
                )
                for m in mechanisms
            )
        if any(m.region == NOWHERE for m in mechanisms):
            why = "a mechanism selects no cohort that is active"
            return Candidate(arrival.id, arrival.utility, (), (why,))
        return make_candidate(self.enforced, arrival.id, arrival.utility, mechanisms)

    def _unlocked(self, number: int) -> UnlockedShares:
        rotation, unlocking = self.schedule.rotation, self.schedule.unlocking
        if self.cohorts is None or rotation is None or unlocking is None:
            return ALL_UNLOCKED
        return unlocked_shares_in_round(number, self.cohorts, rotation, unlocking)


def find_cohort_axis(space: PartitionSpace, rotation: CohortRotation | None) -> int | None:
    """The axis of the cohorts. Raises `Misused` if it is no ranged partition."""
    if rotation is None:
        return None
    for position, axis in enumerate(space.axes):
        if axis.name == rotation.partition and not axis.values:
            return position
    raise OperationRejected(
        f"`{rotation.partition}` is no partition with a range, so it has no cohorts"
    )


def restrict_axis(
    region: Region | None, space: tuple[Interval, ...], axis: int, to: Interval
) -> Region:
    """The part of a region in some places of one axis. Raises `Misused` if there are none."""
    low, high = max(to[0], space[axis][0]), min(to[1], space[axis][1])
    if low >= high:
        raise OperationRejected(f"no cohort from {to[0]} to {to[1] - 1} lies in its partition")
    slab = (*space[:axis], (low, high), *space[axis + 1 :])
    if region is None:
        return Region((slab,))
    if all(box[axis] == space[axis] for box in region.boxes):
        boxes = ((*box[:axis], (low, high), *box[axis + 1 :]) for box in region.boxes)
        return Region(tuple(boxes))
    return region_intersection(region, Region((slab,)))


def _outcome(
    number: int, problem: AllocationProblem, allocation: Solution, times: tuple[float, float, float]
) -> RoundOutcome:
    return RoundOutcome(
        number=number,
        considered=len(problem.ids),
        fitting=int(problem.fits_alone.sum()),
        accepted=tuple(problem.ids[n] for n in np.flatnonzero(allocation.selected).tolist()),
        utility=allocation.utility(problem),
        bound=allocation.bound,
        gap=allocation.gap(problem),
        rows=len(problem.rows),
        build_seconds=times[0],
        solve_seconds=times[1],
        charge_seconds=times[2],
    )
