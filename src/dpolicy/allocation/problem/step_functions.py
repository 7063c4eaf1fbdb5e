"""A rule's loss as lanes: step functions along one axis, for each box of the other axes.

Charging many candidates at once is one sweep: the bounds of all of them cut the axis, and what is
added between two bounds is how often each kind of cost occurs there times that cost. Lanes that
were charged alike share their arrays, so blocks with the same history are found by identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.problem.candidates import CandidatePositions, RuleDemand
from dpolicy.balances.balances import Balances
from dpolicy.balances.segments import Segments
from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Box

#: Numbers of boxes, lanes or cells.
ItemNumbers = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class StepFunction:
    """A step function: where each step starts, and what is spent there, columns × steps."""

    starts: CandidatePositions
    spent: LossArray


@dataclass(frozen=True, slots=True, eq=False)
class BoxStepFunction:
    """Blocks that differ along the swept axis only: a box of the other axes, and the steps."""

    box: Box
    steps: StepFunction


@dataclass(frozen=True, slots=True, eq=False)
class AxisSweep:
    """The swept axis, cut at the bounds of boxes: between which bounds each item lies.

    `member` is segments × items; the segments lie between neighbouring `bounds`.
    """

    bounds: CandidatePositions
    member: NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class SpentByRule:
    """The lanes of every rule along one axis, by its number; a rule without any spent nothing."""

    space: Box
    axis: int
    width: int
    lanes: dict[int, list[BoxStepFunction]] = field(default_factory=dict)

    @staticmethod
    def from_balances(balances: Balances, axis: int, rules: list[int]) -> SpentByRule:
        """What some rules have spent, as lanes along an axis."""
        found = SpentByRule(balances.granularities.space.box, axis, balances.finite.shape[1])
        for rule in rules:
            found.lanes[rule] = step_functions_from_segments(balances.segments_for(rule), axis)
        return found

    def for_rule(self, rule: int) -> list[BoxStepFunction]:
        """The lanes of a rule: disjoint, and together all of the space."""
        known = self.lanes.get(rule)
        if known is None:
            low = self.space[self.axis][0]
            nothing = np.zeros((self.width, 1), np.int64)
            steps = StepFunction(np.array([low], np.int64), nothing)
            known = self.lanes[rule] = [BoxStepFunction(_without(self.space, self.axis), steps)]
        return known

    def charge(self, rule: int, demand: RuleDemand) -> None:
        """Charge a rule for everything that is asked of it."""
        done: dict[tuple[int, bytes], StepFunction] = {}
        added: dict[bytes, tuple[CandidatePositions, LossArray]] = {}
        lanes = []
        for box, lane, boxes in split_into_boxes(self.for_rule(rule), demand, self.axis):
            if not len(boxes):
                lanes.append(BoxStepFunction(box, lane.steps))
                continue
            alike = boxes.tobytes()
            if alike not in added:
                sweep = sweep_axis(demand, boxes, self.axis)
                added[alike] = (
                    sweep.bounds,
                    sum_costs(count_by_kind(sweep.member, demand), demand.table),
                )
            key = id(lane.steps), alike
            if key not in done:
                done[key] = _added(lane.steps, *added[alike], self.space[self.axis][1])
            lanes.append(BoxStepFunction(box, done[key]))
        self.lanes[rule] = lanes

    def loss_at(self, rule: int, point: tuple[int, ...]) -> LossArray:
        """What is spent in one block."""
        others = point[: self.axis] + point[self.axis + 1 :]
        for lane in self.for_rule(rule):
            if all(low <= x < high for x, (low, high) in zip(others, lane.box, strict=True)):
                place = np.searchsorted(lane.steps.starts, point[self.axis], side="right") - 1
                row: LossArray = lane.steps.spent[:, place]
                return row
        raise InvariantBroken(f"the block {point} lies in no lane")


def split_into_boxes(
    lanes: list[BoxStepFunction], demand: RuleDemand, axis: int
) -> Iterator[tuple[Box, BoxStepFunction, ItemNumbers]]:
    """The other axes, cut at all bounds: boxes, each with its lane and the asked boxes over it."""
    ends = np.array([lane.box for lane in lanes], np.int64).reshape(len(lanes), -1, 2)
    others = [a for a in range(len(demand.low)) if a != axis]
    low = np.hstack([ends[:, :, 0].T, demand.low[others]])
    high = np.hstack([ends[:, :, 1].T, demand.high[others]])
    apart = (demand.high[others].max(axis=1) <= low[:, : len(lanes)].T).any(axis=1)
    apart |= (demand.low[others].min(axis=1) >= high[:, : len(lanes)].T).any(axis=1)
    for number in np.flatnonzero(apart).tolist():
        yield lanes[number].box, lanes[number], np.empty(0, np.intp)
    near = np.flatnonzero(np.append(~apart, np.ones(len(demand.item_of_box), bool)))
    for box, found in _cut(low, high, near, ()):
        split = np.searchsorted(found, len(lanes))
        if split == 1:
            yield box, lanes[int(found[0])], found[1:] - len(lanes)
        elif split:
            raise InvariantBroken("lanes overlap")


def _cut(
    low: CandidatePositions, high: CandidatePositions, inside: ItemNumbers, done: Box
) -> Iterator[tuple[Box, ItemNumbers]]:
    """Boxes, some of which are `inside` a slab → disjoint boxes and the ones that cover each."""
    axis = len(done)
    if axis == len(low):
        yield done, inside
        return
    starts, ends = low[axis][inside], high[axis][inside]
    start, end = int(starts.max()), int(ends.min())
    if start == starts.min() and end == ends.max():
        yield from _cut(low, high, inside, (*done, (start, end)))
        return
    bounds = merge_sorted(starts, ends).tolist()
    before, found = bounds[0], inside[:0]
    for start, end in pairwise(bounds):
        over = inside[(starts <= start) & (ends >= end)]
        if not np.array_equal(over, found):
            if len(found):
                yield from _cut(low, high, found, (*done, (before, start)))
            before, found = start, over
    if len(found):
        yield from _cut(low, high, found, (*done, (before, bounds[-1])))


def sweep_axis(demand: RuleDemand, boxes: ItemNumbers, axis: int) -> AxisSweep:
    """Where along the axis the items of some boxes lie."""
    low, high, item = demand.low[axis][boxes], demand.high[axis][boxes], demand.item_of_box[boxes]
    bounds = merge_sorted(low, high)
    change = np.zeros((len(bounds), len(demand.owner)), np.int8)
    np.add.at(change, (np.searchsorted(bounds, low), item), 1)
    np.subtract.at(change, (np.searchsorted(bounds, high), item), 1)
    np.cumsum(change, axis=0, out=change)
    return AxisSweep(bounds, change[:-1] > 0)


def merge_sorted(left: CandidatePositions, right: CandidatePositions) -> CandidatePositions:
    """The numbers of both, rising; for arrays that are sorted much faster than a set."""
    both = np.concatenate([left, right])
    both.sort(kind="stable")
    different = np.ones(len(both), bool)
    np.not_equal(both[1:], both[:-1], out=different[1:])
    found: CandidatePositions = both[different]
    return found


def count_by_kind(member: NDArray[np.bool_], demand: RuleDemand) -> NDArray[np.int64]:
    """How often each kind of cost occurs in sets of items, sets × kinds."""
    counts = np.zeros((len(member), len(demand.table)), np.int64)
    order = np.argsort(demand.kind, kind="stable")
    kinds, starts = np.unique(demand.kind[order], return_index=True)
    sorted_ = member.take(order, axis=1).view(np.int8)
    counts[:, kinds] = np.add.reduceat(sorted_, starts, axis=1, dtype=np.int32)
    return counts


def sum_costs(counts: NDArray[np.int64], table: LossArray) -> LossArray:
    """Counts × costs, exactly; what reaches INFINITE stays there."""
    endless = table >= INFINITE
    finite = np.where(endless, 0, table)
    exact = counts @ finite
    over = counts @ endless.astype(np.int64) > 0
    if len(counts) and int(counts.sum(axis=1).max()) * int(finite.max(initial=0)) >= 2**63:
        rough = counts.astype(np.float64) @ finite.astype(np.float64)
        over |= rough > 1.5 * INFINITE
    total: LossArray = np.where(over, INFINITE, np.minimum(exact, INFINITE))
    return total


def _added(
    steps: StepFunction, bounds: CandidatePositions, amounts: LossArray, end: int
) -> StepFunction:
    """Steps with amounts, segments × columns, added between bounds; none begins at the end."""
    starts = merge_sorted(steps.starts, bounds)
    starts = starts[starts < end]
    spent = steps.spent[:, np.searchsorted(steps.starts, starts, side="right") - 1]
    segment = np.searchsorted(bounds, starts, side="right") - 1
    inside = np.flatnonzero((segment >= 0) & (segment < len(amounts)))
    spent[:, inside] = np.minimum(spent[:, inside] + amounts[segment[inside]].T, INFINITE)
    return StepFunction(starts, spent)


def step_functions_from_segments(segments: Segments, axis: int) -> list[BoxStepFunction]:
    """The cells of a rule as lanes along an axis."""
    parts = segments.to_arrays()
    others = [a for a in range(len(segments.space)) if a != axis]
    low, high = parts["low"], parts["high"]
    lanes = []
    for box, cells in _cut(low[others], high[others], np.arange(len(segments)), ()):
        order = cells[np.argsort(low[axis][cells])]
        lanes.append(
            BoxStepFunction(box, StepFunction(low[axis][order], parts["amounts"][:, order]))
        )
    return lanes


def _without(box: Box, axis: int) -> Box:
    return box[:axis] + box[axis + 1 :]
