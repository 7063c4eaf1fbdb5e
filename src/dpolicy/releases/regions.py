"""Boxes → the set of points they cover: which privacy units and time steps a mechanism reads.

A point is a block of theory 6.1: one value per partition and one time step. A region is kept in its
only form: cut along the first axis into the fewest slabs, each of them a region of the axes that
remain. So the boxes are disjoint, a point counts once however often it was listed, all values of an
axis are one interval, and equal sets are equal values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from dpolicy.errors import InvalidValue, InvariantBroken

#: The whole numbers from `low` up to, and without, `high`.
Interval = tuple[int, int]

#: One interval per axis. The box without axes has one point.
Box = tuple[Interval, ...]

#: One whole number per axis.
Point = tuple[int, ...]

#: A release that draws more boxes than this is refused: each one costs time at every check.
MAX_BOXES = 4096

#: Boxes that cross each other this much on the way count as too many, too.
STEPS_A_BOX = 64


@dataclass(frozen=True, slots=True)
class Region:
    """A set of points as disjoint boxes in rising order. Made by the functions below only."""

    boxes: tuple[Box, ...]


#: No point, in any dimension.
NOWHERE = Region(())

#: The one point of the space without axes: everybody, always.
EVERYTHING = Region(((),))


def region_from_boxes(boxes: Iterable[Box]) -> Region:
    """The points in at least one of the boxes, which may overlap; an empty box adds nothing."""
    drawn = sorted({box for box in boxes if all(low < high for low, high in box)})
    if len({len(box) for box in drawn}) > 1:
        raise InvariantBroken("boxes of different dimensions")
    return Region(_united(drawn))


def region_product(a: Region, b: Region) -> Region:
    """The points whose first axes lie in `a` and the rest in `b`: listed values, axis by axis."""
    check_box_count(len(a.boxes) * len(b.boxes))
    return Region(tuple(x + y for x in a.boxes for y in b.boxes))


def region_union(a: Region, b: Region) -> Region:
    """The points in either."""
    return Region(_combined(a.boxes, b.boxes, operator.or_))


def region_intersection(a: Region, b: Region) -> Region:
    """The points in both."""
    return Region(_combined(a.boxes, b.boxes, operator.and_))


def region_difference(a: Region, b: Region) -> Region:
    """The points in `a` and not in `b`."""
    return Region(_combined(a.boxes, b.boxes, lambda in_a, in_b: in_a and not in_b))


def is_empty(a: Region) -> bool:
    """Whether no point is left."""
    return not a.boxes


def contains(a: Region, point: Point) -> bool:
    """Whether the point lies in the region."""
    return any(
        all(low <= x < high for x, (low, high) in zip(point, box, strict=True)) for box in a.boxes
    )


def region_covers(a: Region, box: Box) -> bool:
    """Whether every point of the box lies in the region."""
    return is_empty(region_difference(region_from_boxes([box]), a))


def widen_axis(a: Region, axis: int, extent: Interval) -> Region:
    """The region with one axis replaced by a whole interval; boxes that now overlap become one."""
    return region_from_boxes((*box[:axis], extent, *box[axis + 1 :]) for box in a.boxes)


def _united(boxes: list[Box]) -> tuple[Box, ...]:
    """Halves first: too many boxes are refused when the first of them have been seen."""
    if len(boxes) <= 1:
        return tuple(boxes)
    middle = len(boxes) // 2
    return _combined(_united(boxes[:middle]), _united(boxes[middle:]), operator.or_)


#: Whether a point stays, by whether it is in the first and in the second region.
_Keep = Callable[[bool, bool], bool]


def _combined(a: tuple[Box, ...], b: tuple[Box, ...], keep: _Keep) -> tuple[Box, ...]:
    return _Sweep(keep).combine(a, b)


@dataclass(slots=True)
class _Sweep:
    """One pass over two regions, and the steps that it took."""

    keep: _Keep
    steps: int = 0

    def combine(self, a: tuple[Box, ...], b: tuple[Box, ...]) -> tuple[Box, ...]:
        """Sweep the first axis; between neighbouring bounds neither region changes along it."""
        if not a or not b:
            return (a or b) if self.keep(bool(a), bool(b)) else ()
        if a[0] == ():
            return ((),) if self.keep(True, True) else ()
        bounds = sorted({x for box in (*a, *b) for x in box[0]})
        self.steps += len(bounds)
        check_box_count(self.steps // STEPS_A_BOX)
        done: list[Box] = []
        low, high = bounds[0], bounds[0]
        inner: tuple[Box, ...] = ()  # of the slab from `low` to `high`, which may still grow
        slabs = zip(pairwise(bounds), _slabs(a, bounds), _slabs(b, bounds), strict=True)
        for (start, end), in_a, in_b in slabs:
            found = self.combine(in_a, in_b)
            if found != inner:
                done += (((low, high), *box) for box in inner)
                check_box_count(len(done) + len(found))
                low, inner = start, found
            high = end
        done += (((low, high), *box) for box in inner)
        return tuple(done)


def _slabs(boxes: tuple[Box, ...], bounds: list[int]) -> Iterator[tuple[Box, ...]]:
    """For each step between two bounds, what the boxes are there on the axes that remain."""
    slabs = groupby(boxes, key=lambda box: box[0])
    low, high = bounds[-1], bounds[0]
    inner: tuple[Box, ...] = ()
    for step, _ in pairwise(bounds):
        if step >= high:
            (low, high), group = next(slabs, ((bounds[-1], bounds[-1] + 1), iter(())))
            inner = tuple(box[1:] for box in group)
        yield inner if low <= step else ()


def check_box_count(boxes: int) -> None:
    """Raise `InvalidValue` for more boxes than a release may draw."""
    if boxes > MAX_BOXES:
        raise InvalidValue("R008", "the selection falls into too many boxes; use ranges")


#: Ranges of partitions are kept as boundaries, so this only refuses slips.
MAX_PARTITION_VALUES = 10**12
