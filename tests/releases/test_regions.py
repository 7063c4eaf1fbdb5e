"""Regions are sets of points in canonical form (theory 6.1)."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.blocks import points

from dpolicy.errors import InvalidValue, InvariantBroken
from dpolicy.releases.regions import (
    EVERYTHING,
    MAX_BOXES,
    NOWHERE,
    Box,
    Region,
    contains,
    is_empty,
    region_covers,
    region_difference,
    region_from_boxes,
    region_intersection,
    region_product,
    region_union,
    widen_axis,
)

SIZE = 5

without_deadline = settings(deadline=None)


def box_lists(dimension: int) -> st.SearchStrategy[list[Box]]:
    """Generate lists of boxes in a small cube; some overlap, and some are empty."""
    interval = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE))
    return st.lists(st.tuples(*[interval] * dimension), max_size=6)


two_lists = st.integers(0, 3).flatmap(lambda d: st.tuples(box_lists(d), box_lists(d)))


def check_form(region: Region) -> None:
    """Check that the boxes are disjoint, not empty and in ascending order."""
    boxes = region.boxes
    assert list(boxes) == sorted(boxes)
    assert sum(len(points([box])) for box in boxes) == len(points(boxes))
    assert all(low < high for box in boxes for low, high in box)


@without_deadline
@given(two_lists)
def test_operations_agree_with_those_of_sets(lists: tuple[list[Box], list[Box]]) -> None:
    a, b = (region_from_boxes(boxes) for boxes in lists)
    in_a, in_b = (points(boxes) for boxes in lists)
    expected = {
        a: in_a,
        region_union(a, b): in_a | in_b,
        region_intersection(a, b): in_a & in_b,
        region_difference(a, b): in_a - in_b,
    }
    for region, members in expected.items():
        check_form(region)
        assert points(region.boxes) == members
        assert is_empty(region) == (not members)
    assert all(contains(a, point) == (point in in_a) for point in in_a | in_b)
    assert all(region_covers(a, box) == (points([box]) <= in_a) for box in lists[1])


@without_deadline
@given(two_lists)
def test_equal_sets_are_equal_values(lists: tuple[list[Box], list[Box]]) -> None:
    a, b = (region_from_boxes(boxes) for boxes in lists)
    both = region_union(a, b)
    assert both == region_union(b, a) == region_from_boxes(lists[1] + lists[0])
    assert both == region_union(region_difference(a, b), b)
    singles = [tuple((x, x + 1) for x in point) for point in points(lists[0] + lists[1])]
    assert both == region_from_boxes(singles)


@without_deadline
@given(two_lists)
def test_a_product_pairs_all_points(lists: tuple[list[Box], list[Box]]) -> None:
    a, b = (region_from_boxes(boxes) for boxes in lists)
    both = region_product(a, b)
    assert points(both.boxes) == {x + y for x in points(a.boxes) for y in points(b.boxes)}
    assert both == region_from_boxes(both.boxes)


@without_deadline
@given(st.integers(1, 3).flatmap(lambda d: st.tuples(box_lists(d), st.integers(0, d - 1))))
def test_widening_removes_the_limits_of_one_axis(case: tuple[list[Box], int]) -> None:
    boxes, axis = case
    wide = widen_axis(region_from_boxes(boxes), axis, (0, SIZE))
    check_form(wide)
    expected = {(*p[:axis], x, *p[axis + 1 :]) for p in points(boxes) for x in range(SIZE)}
    assert points(wide.boxes) == expected


def test_all_values_listed_are_one_box() -> None:
    listed = region_from_boxes(((x, x + 1), (y, y + 1)) for x in range(20) for y in range(30))
    assert listed.boxes == (((0, 20), (0, 30)),)


def test_a_region_without_axes_is_everything_or_nothing() -> None:
    assert region_from_boxes([()]) == region_from_boxes([(), ()]) == EVERYTHING
    assert region_from_boxes([]) == region_difference(EVERYTHING, EVERYTHING) == NOWHERE
    assert contains(EVERYTHING, ()) and region_covers(EVERYTHING, ())
    assert not contains(NOWHERE, ()) and not region_covers(NOWHERE, ())


def test_boxes_with_different_numbers_of_axes_are_refused() -> None:
    with pytest.raises(InvariantBroken):
        region_from_boxes([((0, 1),), ((0, 1), (0, 1))])


def test_too_many_boxes_are_refused() -> None:
    line = region_from_boxes([((2 * x, 2 * x + 1),) for x in range(MAX_BOXES)])
    assert len(line.boxes) == MAX_BOXES
    with pytest.raises(InvalidValue, match="R008"):
        region_union(line, region_from_boxes([((-2, -1),)]))
    with pytest.raises(InvalidValue, match="R008"):
        region_product(line, region_from_boxes([((0, 1),), ((2, 3),)]))


def test_a_large_selection_is_refused_quickly() -> None:
    generator = random.Random(1)
    cubes = [
        tuple((x, x + 40) for x in (generator.randrange(10_000) for _ in range(3)))
        for _ in range(20_000)
    ]
    start = time.process_time()
    with pytest.raises(InvalidValue, match="R008"):
        region_from_boxes(cubes)
    assert time.process_time() - start < 5


def test_crossing_boxes_are_refused_quickly() -> None:
    rows = region_from_boxes([((0, 20_000), (2 * x, 2 * x + 1)) for x in range(3_000)])
    dots = region_from_boxes([((2 * x, 2 * x + 1), (2 * x, 2 * x + 1)) for x in range(3_000)])
    for operation in (region_union, region_intersection, region_difference):
        with pytest.raises(InvalidValue, match="R008"):
            operation(dots, rows)
