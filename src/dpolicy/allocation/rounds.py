"""Arriving requests → rounds: build, choose, charge, and on to the next; all in memory.

A round considers what arrived and what still waits. Where cohorts rotate, a request asks for the
cohorts that are active in the round that considers it. Nothing is written anywhere: a simulation
shows what a policy, a schedule and a strategy would do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpolicy.allocation.building import build_on, busiest_axis
from dpolicy.allocation.candidates import Candidate, asked_of, candidate_of
from dpolicy.allocation.lanes import Tracks
from dpolicy.allocation.market import Market
from dpolicy.allocation.problem import Allocation, Problem
from dpolicy.allocation.strategies import Strategy
from dpolicy.allocation.unlocking import (
    ALL_UNLOCKED,
    Rotation,
    Unlocked,
    Unlocking,
    unlocked_in,
)
from dpolicy.enforcement.check import prepared
from dpolicy.enforcement.places import Space, space_of
from dpolicy.enforcement.resolution import Resolved
from dpolicy.errors import Misused
from dpolicy.privacy.rows import width
from dpolicy.releases.regions import NOWHERE, Interval, Region, intersection
from dpolicy.rules.compiler import CompiledPolicy

#: Seconds, from whenever.
Seconds = Callable[[], float]


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A resolved release, the round it arrives in, and its worth."""

    id: str
    round: int
    utility: float
    mechanisms: tuple[Resolved, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which cohorts a round reaches and how much of their budgets; how long requests wait.

    `patience` is how many rounds consider a request: with 1 it has one chance.
    """

    rotation: Rotation | None = None
    unlocking: Unlocking | None = None
    patience: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a round; `building` and `choosing` are seconds."""

    number: int
    considered: int
    fitting: int
    accepted: tuple[str, ...]
    utility: float
    bound: float
    gap: float
    rows: int
    building: float
    choosing: float
    charging: float

    @property
    def seconds(self) -> float:
        """All that the round took."""
        return self.building + self.choosing + self.charging


class Simulation:
    """Rounds that follow each other on the balances of the ones before."""

    def __init__(
        self,
        policy: CompiledPolicy,
        strategy: Strategy,
        schedule: Schedule,
        clock: Seconds = lambda: 0.0,
    ) -> None:
        self.policy, self.strategy, self.schedule, self._clock = policy, strategy, schedule, clock
        self.of, _ = prepared(policy)
        self._waiting: list[Arrival] = []
        self.cohorts = cohort_axis(space_of(policy), schedule.rotation)
        self.tracks: Tracks | None = None
        self.market = Market.opened(len(self.of.space))

    def run(self, arrivals: Iterable[Arrival], rounds: Iterable[int]) -> Iterator[Outcome]:
        """The outcome of each round, one after the other."""
        by_round: dict[int, list[Arrival]] = {}
        for arrival in arrivals:
            by_round.setdefault(arrival.round, []).append(arrival)
        for number in rounds:
            yield self.round(number, by_round.get(number, ()))

    def round(self, number: int, arriving: Sequence[Arrival]) -> Outcome:
        """One round: what waits and what arrives competes, and the winners are charged."""
        started = self._clock()
        considered = [*self._waiting, *arriving]
        candidates = [self.candidate(arrival, number) for arrival in considered]
        asked = asked_of(self.of.layout, candidates)
        unlocked = self._unlocked(number)
        if self.tracks is None:
            axis = busiest_axis(asked, unlocked, len(self.of.space))
            self.tracks = Tracks(self.of.space, axis, width(self.of.certificates))
        problem = build_on(self.of, self.tracks, candidates, asked, unlocked)
        later = self.market.later(self.of, asked, len(candidates), self.cohorts)
        problem = replace(problem, later=later)
        built = self._clock()
        allocation = self.strategy(problem)
        if len(allocation.prices):
            self.market = self.market.after(problem, allocation)
        chosen = self._clock()
        for rule, wanted in asked.items():
            won = wanted.only(allocation.chosen)
            if won is not None:
                self.tracks.charge(rule, won)
        self._waiting = [
            arrival
            for arrival, wins in zip(considered, allocation.chosen.tolist(), strict=True)
            if not wins and number - arrival.round + 1 < self.schedule.patience
        ]
        times = built - started, chosen - built, self._clock() - chosen
        return _outcome(number, problem, allocation, times)

    @property
    def not_unlocked(self) -> tuple[str, ...]:
        """The rules that all cohorts share: a schedule does not hold any of their budgets back."""
        if self.cohorts is None or self.schedule.unlocking is None:
            return ()
        layout, rules = self.of.layout, self.of.section.rules
        kept = self.of.section.pruned.kept.nonzero()[0].tolist()
        shared = (
            n for n in kept if self.cohorts not in layout.frames[layout.frame_of[n]].partitions
        )
        return tuple(rules[number].name for number in shared)

    def candidate(self, arrival: Arrival, number: int) -> Candidate:
        """An arrival as a candidate of a round, for the cohorts that are active then."""
        mechanisms = arrival.mechanisms
        if self.cohorts is not None and self.schedule.rotation is not None:
            active = self.schedule.rotation.cohorts(number)
            mechanisms = tuple(
                replace(m, region=narrowed(m.region, self.of.space, self.cohorts, active))
                for m in mechanisms
            )
        if any(m.region == NOWHERE for m in mechanisms):
            why = "a mechanism selects no cohort that is active"
            return Candidate(arrival.id, arrival.utility, (), (why,))
        return candidate_of(self.policy, arrival.id, arrival.utility, mechanisms)

    def _unlocked(self, number: int) -> Unlocked:
        rotation, unlocking = self.schedule.rotation, self.schedule.unlocking
        if self.cohorts is None or rotation is None or unlocking is None:
            return ALL_UNLOCKED
        return unlocked_in(number, self.cohorts, rotation, unlocking)


def cohort_axis(space: Space, rotation: Rotation | None) -> int | None:
    """The axis of the cohorts. Raises `Misused` if it is no ranged partition."""
    if rotation is None:
        return None
    for position, axis in enumerate(space.axes):
        if axis.name == rotation.partition and not axis.values:
            return position
    raise Misused(f"`{rotation.partition}` is no partition with a range, so it has no cohorts")


def narrowed(region: Region | None, space: tuple[Interval, ...], axis: int, to: Interval) -> Region:
    """The part of a region in some places of one axis. Raises `Misused` if there are none."""
    low, high = max(to[0], space[axis][0]), min(to[1], space[axis][1])
    if low >= high:
        raise Misused(f"no cohort from {to[0]} to {to[1] - 1} lies in its partition")
    slab = (*space[:axis], (low, high), *space[axis + 1 :])
    if region is None:
        return Region((slab,))
    if all(box[axis] == space[axis] for box in region.boxes):
        boxes = ((*box[:axis], (low, high), *box[axis + 1 :]) for box in region.boxes)
        return Region(tuple(boxes))
    return intersection(region, Region((slab,)))


def _outcome(
    number: int, problem: Problem, allocation: Allocation, times: tuple[float, float, float]
) -> Outcome:
    return Outcome(
        number=number,
        considered=len(problem.ids),
        fitting=int(problem.fits_alone.sum()),
        accepted=tuple(problem.ids[n] for n in np.flatnonzero(allocation.chosen).tolist()),
        utility=allocation.utility(problem),
        bound=allocation.bound,
        gap=allocation.gap(problem),
        rows=len(problem.rows),
        building=times[0],
        choosing=times[1],
        charging=times[2],
    )
