"""Loss of a rule as step functions along one axis, one function per box of the other axes.

One sweep charges many candidates: their bounds cut the axis into segments, and each segment gets
count × cost, summed over the kinds of cost. Boxes that received the same charges share their
arrays, so blocks with the same history are recognised by identity.
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

#: Indices of boxes, items or cells.
ItemNumbers = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class StepFunction:
    """Spent loss (columns × steps) as a step function of the position on the swept axis."""

    starts: CandidatePositions
    spent: LossArray


@dataclass(frozen=True, slots=True, eq=False)
class BoxStepFunction:
    """Step function that holds in one box of the axes that are not swept."""

    box: Box
    steps: StepFunction


@dataclass(frozen=True, slots=True, eq=False)
class AxisSweep:
    """Swept axis cut at the bounds of boxes, with the items of each segment.

    A segment lies between two neighbouring `bounds`; `member` is segments × items.
    """

    bounds: CandidatePositions
    member: NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class SpentByRule:
    """Step functions of every rule along one axis, by rule number.

    A rule without an entry has spent nothing.
    """

    space: Box
    axis: int
    width: int
    by_rule: dict[int, list[BoxStepFunction]] = field(default_factory=dict)

    @staticmethod
    def from_balances(balances: Balances, axis: int, rules: list[int]) -> SpentByRule:
        """Return the balances of `rules` as step functions along `axis`."""
        spent = SpentByRule(balances.granularities.space.box, axis, balances.finite.shape[1])
        for rule in rules:
            spent.by_rule[rule] = step_functions_from_segments(balances.segments_for(rule), axis)
        return spent

    def for_rule(self, rule: int) -> list[BoxStepFunction]:
        """Return the step functions of a rule; their boxes are disjoint and cover the space."""
        if rule not in self.by_rule:
            low = self.space[self.axis][0]
            nothing = np.zeros((self.width, 1), np.int64)
            steps = StepFunction(np.array([low], np.int64), nothing)
            self.by_rule[rule] = [BoxStepFunction(_drop_axis(self.space, self.axis), steps)]
        return self.by_rule[rule]

    def charge(self, rule: int, demand: RuleDemand) -> None:
        """Add the whole demand to the loss of a rule."""
        charged: dict[tuple[int, bytes], StepFunction] = {}
        added: dict[bytes, tuple[CandidatePositions, LossArray]] = {}
        functions = []
        for box, function, boxes in split_into_boxes(self.for_rule(rule), demand, self.axis):
            if not len(boxes):
                functions.append(BoxStepFunction(box, function.steps))
                continue
            box_set = boxes.tobytes()
            if box_set not in added:
                sweep = sweep_axis(demand, boxes, self.axis)
                added[box_set] = (
                    sweep.bounds,
                    sum_costs(count_by_kind(sweep.member, demand), demand.table),
                )
            key = id(function.steps), box_set
            if key not in charged:
                charged[key] = _add_amounts(
                    function.steps, *added[box_set], self.space[self.axis][1]
                )
            functions.append(BoxStepFunction(box, charged[key]))
        self.by_rule[rule] = functions

    def loss_at(self, rule: int, point: tuple[int, ...]) -> LossArray:
        """Return the loss in the block of a point."""
        position = point[: self.axis] + point[self.axis + 1 :]
        for function in self.for_rule(rule):
            if all(low <= x < high for x, (low, high) in zip(position, function.box, strict=True)):
                step = np.searchsorted(function.steps.starts, point[self.axis], side="right") - 1
                row: LossArray = function.steps.spent[:, step]
                return row
        raise InvariantBroken(f"no step function covers the block {point}")


def split_into_boxes(
    functions: list[BoxStepFunction], demand: RuleDemand, axis: int
) -> Iterator[tuple[Box, BoxStepFunction, ItemNumbers]]:
    """Split the space of the other axes at all bounds of functions and demanded boxes.

    Yield each box with the function that holds there and the numbers of the demanded boxes over it.
    """
    ends = np.array([function.box for function in functions], np.int64).reshape(
        len(functions), -1, 2
    )
    other_axes = [a for a in range(len(demand.low)) if a != axis]
    low = np.hstack([ends[:, :, 0].T, demand.low[other_axes]])
    high = np.hstack([ends[:, :, 1].T, demand.high[other_axes]])
    outside = (demand.high[other_axes].max(axis=1) <= low[:, : len(functions)].T).any(axis=1)
    outside |= (demand.low[other_axes].min(axis=1) >= high[:, : len(functions)].T).any(axis=1)
    for number in np.flatnonzero(outside).tolist():
        yield functions[number].box, functions[number], np.empty(0, np.intp)
    near = np.flatnonzero(np.append(~outside, np.ones(len(demand.item_of_box), bool)))
    for box, covering in _split_boxes(low, high, near, ()):
        split = np.searchsorted(covering, len(functions))
        if split == 1:
            yield box, functions[int(covering[0])], covering[1:] - len(functions)
        elif split:
            raise InvariantBroken("step functions overlap")


def _split_boxes(
    low: CandidatePositions, high: CandidatePositions, inside: ItemNumbers, done: Box
) -> Iterator[tuple[Box, ItemNumbers]]:
    """Split the boxes `inside` the slab `done` into disjoint boxes.

    Yield each disjoint box with the numbers of the boxes that cover it.
    """
    axis = len(done)
    if axis == len(low):
        yield done, inside
        return
    starts, ends = low[axis][inside], high[axis][inside]
    start, end = int(starts.max()), int(ends.min())
    if start == starts.min() and end == ends.max():
        yield from _split_boxes(low, high, inside, (*done, (start, end)))
        return
    bounds = merge_sorted(starts, ends).tolist()
    piece_start, covering = bounds[0], inside[:0]
    for start, end in pairwise(bounds):
        over = inside[(starts <= start) & (ends >= end)]
        if not np.array_equal(over, covering):
            if len(covering):
                yield from _split_boxes(low, high, covering, (*done, (piece_start, start)))
            piece_start, covering = start, over
    if len(covering):
        yield from _split_boxes(low, high, covering, (*done, (piece_start, bounds[-1])))


def sweep_axis(demand: RuleDemand, boxes: ItemNumbers, axis: int) -> AxisSweep:
    """Return the segments of the axis in which the items of the given boxes lie."""
    low, high, item = demand.low[axis][boxes], demand.high[axis][boxes], demand.item_of_box[boxes]
    bounds = merge_sorted(low, high)
    change = np.zeros((len(bounds), len(demand.owner)), np.int8)
    np.add.at(change, (np.searchsorted(bounds, low), item), 1)
    np.subtract.at(change, (np.searchsorted(bounds, high), item), 1)
    np.cumsum(change, axis=0, out=change)
    return AxisSweep(bounds, change[:-1] > 0)


def merge_sorted(left: CandidatePositions, right: CandidatePositions) -> CandidatePositions:
    """Return the distinct values of both arrays in ascending order.

    This is much faster than `np.union1d` if both arrays are sorted.
    """
    both = np.concatenate([left, right])
    both.sort(kind="stable")
    different = np.ones(len(both), bool)
    np.not_equal(both[1:], both[:-1], out=different[1:])
    distinct: CandidatePositions = both[different]
    return distinct


def count_by_kind(member: NDArray[np.bool_], demand: RuleDemand) -> NDArray[np.int64]:
    """Count the kinds of cost in each set of items; the result is sets × kinds."""
    counts = np.zeros((len(member), len(demand.table)), np.int64)
    order = np.argsort(demand.kind, kind="stable")
    kinds, starts = np.unique(demand.kind[order], return_index=True)
    sorted_ = member.take(order, axis=1).view(np.int8)
    counts[:, kinds] = np.add.reduceat(sorted_, starts, axis=1, dtype=np.int32)
    return counts


def sum_costs(counts: NDArray[np.int64], table: LossArray) -> LossArray:
    """Return counts × costs in exact integers; sums saturate at INFINITE."""
    endless = table >= INFINITE
    finite = np.where(endless, 0, table)
    exact = counts @ finite
    over = counts @ endless.astype(np.int64) > 0
    if len(counts) and int(counts.sum(axis=1).max()) * int(finite.max(initial=0)) >= 2**63:
        rough = counts.astype(np.float64) @ finite.astype(np.float64)
        over |= rough > 1.5 * INFINITE
    total: LossArray = np.where(over, INFINITE, np.minimum(exact, INFINITE))
    return total


def _add_amounts(
    steps: StepFunction, bounds: CandidatePositions, amounts: LossArray, end: int
) -> StepFunction:
    """Add amounts (segments × columns) between bounds; no step starts at `end` or later."""
    starts = merge_sorted(steps.starts, bounds)
    starts = starts[starts < end]
    spent = steps.spent[:, np.searchsorted(steps.starts, starts, side="right") - 1]
    segment = np.searchsorted(bounds, starts, side="right") - 1
    inside = np.flatnonzero((segment >= 0) & (segment < len(amounts)))
    spent[:, inside] = np.minimum(spent[:, inside] + amounts[segment[inside]].T, INFINITE)
    return StepFunction(starts, spent)


def step_functions_from_segments(segments: Segments, axis: int) -> list[BoxStepFunction]:
    """Convert the cells of a rule to step functions along an axis."""
    parts = segments.to_arrays()
    other_axes = [a for a in range(len(segments.space)) if a != axis]
    low, high = parts["low"], parts["high"]
    functions = []
    for box, cells in _split_boxes(low[other_axes], high[other_axes], np.arange(len(segments)), ()):
        order = cells[np.argsort(low[axis][cells])]
        functions.append(
            BoxStepFunction(box, StepFunction(low[axis][order], parts["amounts"][:, order]))
        )
    return functions


def _drop_axis(box: Box, axis: int) -> Box:
    return box[:axis] + box[axis + 1 :]
