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

from dpolicy.allocation.candidates import Asked, Places
from dpolicy.enforcement.balances import Balances
from dpolicy.enforcement.segments import Segments
from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.rows import Rows
from dpolicy.releases.regions import Box

#: Numbers of boxes, lanes or cells.
Numbers = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A step function: where each step starts, and what is spent there, columns × steps."""

    starts: Places
    spent: Rows


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """Blocks that differ along the swept axis only: a box of the other axes, and the steps."""

    box: Box
    steps: Steps


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """The swept axis, cut at the bounds of boxes: between which bounds each item lies.

    `member` is segments × items; the segments lie between neighbouring `bounds`.
    """

    bounds: Places
    member: NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class Tracks:
    """The lanes of every rule along one axis, by its number; a rule without any spent nothing."""

    space: Box
    axis: int
    width: int
    lanes: dict[int, list[Lane]] = field(default_factory=dict)

    @staticmethod
    def of_balances(balances: Balances, axis: int, rules: list[int]) -> Tracks:
        """What some rules have spent, as lanes along an axis."""
        found = Tracks(balances.layout.space.box, axis, balances.finite.shape[1])
        for rule in rules:
            found.lanes[rule] = lanes_of(balances.of(rule), axis)
        return found

    def of(self, rule: int) -> list[Lane]:
        """The lanes of a rule: disjoint, and together all of the space."""
        known = self.lanes.get(rule)
        if known is None:
            low = self.space[self.axis][0]
            nothing = np.zeros((self.width, 1), np.int64)
            steps = Steps(np.array([low], np.int64), nothing)
            known = self.lanes[rule] = [Lane(_without(self.space, self.axis), steps)]
        return known

    def charge(self, rule: int, asked: Asked) -> None:
        """Charge a rule for everything that is asked of it."""
        done: dict[tuple[int, bytes], Steps] = {}
        added: dict[bytes, tuple[Places, Rows]] = {}
        lanes = []
        for box, lane, boxes in leaves(self.of(rule), asked, self.axis):
            if not len(boxes):
                lanes.append(Lane(box, lane.steps))
                continue
            alike = boxes.tobytes()
            if alike not in added:
                sweep = swept(asked, boxes, self.axis)
                added[alike] = sweep.bounds, summed(counted(sweep.member, asked), asked.table)
            key = id(lane.steps), alike
            if key not in done:
                done[key] = _added(lane.steps, *added[alike], self.space[self.axis][1])
            lanes.append(Lane(box, done[key]))
        self.lanes[rule] = lanes

    def row_at(self, rule: int, point: tuple[int, ...]) -> Rows:
        """What is spent in one block."""
        others = point[: self.axis] + point[self.axis + 1 :]
        for lane in self.of(rule):
            if all(low <= x < high for x, (low, high) in zip(others, lane.box, strict=True)):
                place = np.searchsorted(lane.steps.starts, point[self.axis], side="right") - 1
                row: Rows = lane.steps.spent[:, place]
                return row
        raise InvariantBroken(f"the block {point} lies in no lane")


def leaves(lanes: list[Lane], asked: Asked, axis: int) -> Iterator[tuple[Box, Lane, Numbers]]:
    """The other axes, cut at all bounds: boxes, each with its lane and the asked boxes over it."""
    ends = np.array([lane.box for lane in lanes], np.int64).reshape(len(lanes), -1, 2)
    others = [a for a in range(len(asked.low)) if a != axis]
    low = np.hstack([ends[:, :, 0].T, asked.low[others]])
    high = np.hstack([ends[:, :, 1].T, asked.high[others]])
    apart = (asked.high[others].max(axis=1) <= low[:, : len(lanes)].T).any(axis=1)
    apart |= (asked.low[others].min(axis=1) >= high[:, : len(lanes)].T).any(axis=1)
    for number in np.flatnonzero(apart).tolist():
        yield lanes[number].box, lanes[number], np.empty(0, np.intp)
    near = np.flatnonzero(np.append(~apart, np.ones(len(asked.item), bool)))
    for box, found in _cut(low, high, near, ()):
        split = np.searchsorted(found, len(lanes))
        if split == 1:
            yield box, lanes[int(found[0])], found[1:] - len(lanes)
        elif split:
            raise InvariantBroken("lanes overlap")


def _cut(low: Places, high: Places, inside: Numbers, done: Box) -> Iterator[tuple[Box, Numbers]]:
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
    bounds = united(starts, ends).tolist()
    before, found = bounds[0], inside[:0]
    for start, end in pairwise(bounds):
        over = inside[(starts <= start) & (ends >= end)]
        if not np.array_equal(over, found):
            if len(found):
                yield from _cut(low, high, found, (*done, (before, start)))
            before, found = start, over
    if len(found):
        yield from _cut(low, high, found, (*done, (before, bounds[-1])))


def swept(asked: Asked, boxes: Numbers, axis: int) -> Sweep:
    """Where along the axis the items of some boxes lie."""
    low, high, item = asked.low[axis][boxes], asked.high[axis][boxes], asked.item[boxes]
    bounds = united(low, high)
    change = np.zeros((len(bounds), len(asked.owner)), np.int8)
    np.add.at(change, (np.searchsorted(bounds, low), item), 1)
    np.subtract.at(change, (np.searchsorted(bounds, high), item), 1)
    np.cumsum(change, axis=0, out=change)
    return Sweep(bounds, change[:-1] > 0)


def united(some: Places, others: Places) -> Places:
    """The numbers of both, rising; for arrays that are sorted much faster than a set."""
    both = np.concatenate([some, others])
    both.sort(kind="stable")
    different = np.ones(len(both), bool)
    np.not_equal(both[1:], both[:-1], out=different[1:])
    found: Places = both[different]
    return found


def counted(member: NDArray[np.bool_], asked: Asked) -> NDArray[np.int64]:
    """How often each kind of cost occurs in sets of items, sets × kinds."""
    counts = np.zeros((len(member), len(asked.table)), np.int64)
    order = np.argsort(asked.kind, kind="stable")
    kinds, starts = np.unique(asked.kind[order], return_index=True)
    sorted_ = member.take(order, axis=1).view(np.int8)
    counts[:, kinds] = np.add.reduceat(sorted_, starts, axis=1, dtype=np.int32)
    return counts


def summed(counts: NDArray[np.int64], table: Rows) -> Rows:
    """Counts × costs, exactly; what reaches INFINITE stays there."""
    endless = table >= INFINITE
    finite = np.where(endless, 0, table)
    exact = counts @ finite
    over = counts @ endless.astype(np.int64) > 0
    if len(counts) and int(counts.sum(axis=1).max()) * int(finite.max(initial=0)) >= 2**63:
        rough = counts.astype(np.float64) @ finite.astype(np.float64)
        over |= rough > 1.5 * INFINITE
    total: Rows = np.where(over, INFINITE, np.minimum(exact, INFINITE))
    return total


def _added(steps: Steps, bounds: Places, amounts: Rows, end: int) -> Steps:
    """Steps with amounts, segments × columns, added between bounds; none begins at the end."""
    starts = united(steps.starts, bounds)
    starts = starts[starts < end]
    spent = steps.spent[:, np.searchsorted(steps.starts, starts, side="right") - 1]
    segment = np.searchsorted(bounds, starts, side="right") - 1
    inside = np.flatnonzero((segment >= 0) & (segment < len(amounts)))
    spent[:, inside] = np.minimum(spent[:, inside] + amounts[segment[inside]].T, INFINITE)
    return Steps(starts, spent)


def lanes_of(segments: Segments, axis: int) -> list[Lane]:
    """The cells of a rule as lanes along an axis."""
    parts = segments.parts()
    others = [a for a in range(len(segments.space)) if a != axis]
    low, high = parts["low"], parts["high"]
    lanes = []
    for box, cells in _cut(low[others], high[others], np.arange(len(segments)), ()):
        order = cells[np.argsort(low[axis][cells])]
        lanes.append(Lane(box, Steps(low[axis][order], parts["amounts"][:, order])))
    return lanes


def _without(box: Box, axis: int) -> Box:
    return box[:axis] + box[axis + 1 :]
