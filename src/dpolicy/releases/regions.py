"""Regions: sets of points that describe which privacy units and time steps a mechanism reads.

A point is a block of theory 6.1: one value per partition and one time step. A region has a unique
canonical form: it is cut along the first axis into the fewest slabs, and each slab is a region of
the remaining axes. Therefore the boxes are disjoint, a point counts once even if it is listed
several times, all values of an axis form one interval, and equal sets are equal values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from dpolicy.errors import InvalidValue, InvariantBroken

#: The integers from `low` (included) to `high` (excluded).
Interval = tuple[int, int]

#: One interval per axis. The box without axes contains one point.
Box = tuple[Interval, ...]

#: One integer per axis.
Point = tuple[int, ...]

#: Maximum number of boxes of a release: each box costs time at every check.
MAX_BOXES = 4096

#: Steps of a sweep that count as one box, so that boxes with too many intersections are refused.
STEPS_A_BOX = 64


@dataclass(frozen=True, slots=True)
class Region:
    """A set of points as disjoint boxes in ascending order. Only the functions below create one."""

    boxes: tuple[Box, ...]


#: The empty region, in any dimension.
NOWHERE = Region(())

#: The only point of the space without axes: all units at all times.
EVERYTHING = Region(((),))


def region_from_boxes(boxes: Iterable[Box]) -> Region:
    """Return the union of boxes, which may overlap; empty boxes are ignored."""
    distinct = sorted({box for box in boxes if all(low < high for low, high in box)})
    if len({len(box) for box in distinct}) > 1:
        raise InvariantBroken("boxes have different numbers of axes")
    return Region(_unite(distinct))


def region_product(a: Region, b: Region) -> Region:
    """Return the points whose first axes are in `a` and whose remaining axes are in `b`."""
    check_box_count(len(a.boxes) * len(b.boxes))
    return Region(tuple(x + y for x in a.boxes for y in b.boxes))


def region_union(a: Region, b: Region) -> Region:
    """Return the points that are in `a` or in `b`."""
    return Region(_combine(a.boxes, b.boxes, operator.or_))


def region_intersection(a: Region, b: Region) -> Region:
    """Return the points that are in `a` and in `b`."""
    return Region(_combine(a.boxes, b.boxes, operator.and_))


def region_difference(a: Region, b: Region) -> Region:
    """Return the points that are in `a` and not in `b`."""
    return Region(_combine(a.boxes, b.boxes, lambda in_a, in_b: in_a and not in_b))


def is_empty(a: Region) -> bool:
    """Return whether a region has no point."""
    return not a.boxes


def contains(a: Region, point: Point) -> bool:
    """Return whether a point is in a region."""
    return any(
        all(low <= x < high for x, (low, high) in zip(point, box, strict=True)) for box in a.boxes
    )


def region_covers(a: Region, box: Box) -> bool:
    """Return whether every point of a box is in a region."""
    return is_empty(region_difference(region_from_boxes([box]), a))


def widen_axis(a: Region, axis: int, extent: Interval) -> Region:
    """Return the region with one axis extended to an interval for every point."""
    return region_from_boxes((*box[:axis], extent, *box[axis + 1 :]) for box in a.boxes)


def _unite(boxes: list[Box]) -> tuple[Box, ...]:
    """Unite boxes by halves, so that too many boxes are refused before all are combined."""
    if len(boxes) <= 1:
        return tuple(boxes)
    middle = len(boxes) // 2
    return _combine(_unite(boxes[:middle]), _unite(boxes[middle:]), operator.or_)


#: Whether to keep a point, given whether it is in the first and in the second region.
_Keep = Callable[[bool, bool], bool]


def _combine(a: tuple[Box, ...], b: tuple[Box, ...], keep: _Keep) -> tuple[Box, ...]:
    return _Sweep(keep).combine(a, b)


@dataclass(slots=True)
class _Sweep:
    """Combination of two regions, with a count of the steps to limit its cost."""

    keep: _Keep
    steps: int = 0

    def combine(self, a: tuple[Box, ...], b: tuple[Box, ...]) -> tuple[Box, ...]:
        """Combine slab by slab: between two neighbouring bounds neither region changes."""
        if not a or not b:
            return (a or b) if self.keep(bool(a), bool(b)) else ()
        if a[0] == ():
            return ((),) if self.keep(True, True) else ()
        bounds = sorted({x for box in (*a, *b) for x in box[0]})
        self.steps += len(bounds)
        check_box_count(self.steps // STEPS_A_BOX)
        done: list[Box] = []
        low, high = bounds[0], bounds[0]
        inner: tuple[Box, ...] = ()  # boxes of the slab from `low` to `high`, which may still grow
        slabs = zip(pairwise(bounds), _slabs(a, bounds), _slabs(b, bounds), strict=True)
        for (start, end), in_a, in_b in slabs:
            combined = self.combine(in_a, in_b)
            if combined != inner:
                done += (((low, high), *box) for box in inner)
                check_box_count(len(done) + len(combined))
                low, inner = start, combined
            high = end
        done += (((low, high), *box) for box in inner)
        return tuple(done)


def _slabs(boxes: tuple[Box, ...], bounds: list[int]) -> Iterator[tuple[Box, ...]]:
    """Yield, for each step between two bounds, the boxes there without their first axis."""
    slabs = groupby(boxes, key=lambda box: box[0])
    low, high = bounds[-1], bounds[0]
    inner: tuple[Box, ...] = ()
    for step, _ in pairwise(bounds):
        if step >= high:
            (low, high), group = next(slabs, ((bounds[-1], bounds[-1] + 1), iter(())))
            inner = tuple(box[1:] for box in group)
        yield inner if low <= step else ()


def check_box_count(boxes: int) -> None:
    """Raise `InvalidValue` for more than `MAX_BOXES` boxes."""
    if boxes > MAX_BOXES:
        raise InvalidValue("R008", "the selection has too many boxes; use ranges")


#: Largest absolute value of a range. Ranges are stored by their ends, so this only catches typing
#: errors.
MAX_PARTITION_VALUES = 10**12
