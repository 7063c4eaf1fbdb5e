"""Segments agree with the naive step function in every block (theory 6.1, 6.3)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.reference.blocks import Blocks, Row, points

from dpolicy.balances.segments import SegmentAmounts, Segments
from dpolicy.balances.touched_cells import SegmentCells
from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.regions import Box, Interval, Point, Region, contains, region_from_boxes

WIDTH = 2
SIZE = 5

unhurried = settings(deadline=None)

Rows = st.SearchStrategy[Row]


def array(row: Row) -> SegmentAmounts:
    return np.array(row, np.int64)


@dataclass(frozen=True)
class Charge:
    """A charge, and whether the test subtracts it again later."""

    boxes: list[Box]
    row: Row
    void: bool = False

    @property
    def region(self) -> Region:
        return region_from_boxes(self.boxes)


@dataclass(frozen=True)
class Merge:
    axis: int
    low: int
    high: int


@dataclass(frozen=True)
class Story:
    """A small space with a sequence of charges and merges."""

    space: Box
    start: Row = field(default_factory=lambda: [0] * WIDTH)
    steps: list[Charge | Merge] = field(default_factory=list)


def row_of(amount: st.SearchStrategy[int]) -> st.SearchStrategy[Row]:
    return st.lists(amount, min_size=WIDTH, max_size=WIDTH)


small_rows = row_of(st.integers(0, 3))
rows = small_rows | small_rows | row_of(st.sampled_from([0, 1, INFINITE // 2, INFINITE]))


def within(low: int, high: int) -> st.SearchStrategy[Interval]:
    """An interval of steps between two bounds."""
    steps = st.lists(st.integers(low, high), min_size=2, max_size=2, unique=True)
    return steps.map(lambda pair: (min(pair), max(pair)))


def unions(space: Box) -> st.SearchStrategy[list[Box]]:
    """Boxes that may overlap or extend beyond the space."""
    box = st.tuples(*(within(low - 1, high + 1) for low, high in space))
    return st.lists(box, min_size=1, max_size=4)


def merges_of(space: Box) -> st.SearchStrategy[Merge]:
    """Intervals of steps of one axis."""
    axes = st.integers(0, len(space) - 1)
    return axes.flatmap(lambda axis: within(*space[axis]).map(lambda run: Merge(axis, *run)))


@st.composite
def stories(
    draw: st.DrawFn, merges: bool = True, axes: tuple[int, int] = (0, 3), row: Rows = rows
) -> Story:
    """Sequences of charges and, if requested, merges."""
    extent = st.tuples(st.integers(-1, 1), st.integers(2, SIZE))
    space = tuple(draw(st.lists(extent, min_size=axes[0], max_size=axes[1])))
    steps: st.SearchStrategy[Charge | Merge]
    steps = st.builds(Charge, unions(space), row, st.booleans())
    if merges and space:
        steps |= merges_of(space)
    return Story(space, draw(row), draw(st.lists(steps, max_size=8)))


def cells_of(segments: Segments) -> list[Box]:
    parts = segments.to_arrays()
    corners = zip(parts["low"].T.tolist(), parts["high"].T.tolist(), strict=True)
    return [tuple(zip(low, high, strict=True)) for low, high in corners]


def check_same(segments: Segments, blocks: Blocks) -> None:
    """Check that cells are disjoint, cover the space, and have the amounts of their blocks."""
    covered: set[Point] = set()
    spent = segments.columns(np.arange(len(segments))).T.tolist()
    for cell, row in zip(cells_of(segments), spent, strict=True):
        inside = points([cell])
        assert inside and not inside & covered
        covered |= inside
        assert all(blocks.rows[point] == row for point in inside)
    assert covered == blocks.rows.keys()
    for point, row in blocks.rows.items():
        assert segments.amounts_at(point).tolist() == row


def play(story: Story, kind: type[Segments] = Segments) -> Iterator[tuple[Segments, Blocks]]:
    """Apply every step to the segments and to the twin; yield both after each step."""
    segments, blocks = kind(story.space, array(story.start)), Blocks(story.space, story.start)
    yield segments, blocks
    for step in story.steps:
        if isinstance(step, Merge):
            segments.merge(step.axis, step.low, step.high)
            blocks.merge(step.axis, step.low, step.high)
        else:
            segments.add(step.region, array(step.row))
            blocks.add(points(step.boxes), step.row)
        yield segments, blocks


def charges_of(story: Story) -> list[Charge]:
    return [step for step in story.steps if isinstance(step, Charge)]


class Eager(Segments):
    """Segments that join neighbours after every charge, and always look up boxes as combs."""

    _MAX_SINGLE_LOOKUPS = 1

    def _join_if_doubled(self) -> None:
        self._join()


@pytest.mark.parametrize("kind", [Segments, Eager])
@unhurried
@given(story=stories())
def test_agrees_with_the_naive_twin(kind: type[Segments], story: Story) -> None:
    for segments, blocks in play(story, kind):
        check_same(segments, blocks)
        check_same(segments.copy(), blocks)


@pytest.mark.parametrize("kind", [Segments, Eager])
@unhurried
@given(story=stories(merges=False))
def test_subtract_is_exact_or_refused(kind: type[Segments], story: Story) -> None:
    *_, (segments, blocks) = play(story, kind)
    for charge in charges_of(story):
        where = points(charge.boxes)
        if charge.void:
            done = segments.subtract(charge.region, array(charge.row))
            assert done != blocks.is_saturated(where, charge.row)
            if done:
                blocks.subtract(where, charge.row)
            check_same(segments, blocks)


@unhurried
@given(stories(axes=(1, 3), row=small_rows), st.data())
def test_subtract_refuses_merged_blocks(story: Story, data: st.DataObject) -> None:
    *_, (segments, blocks) = play(story)
    merged: set[Point] = set()
    for step in story.steps:
        if isinstance(step, Merge):
            low, high = story.space[step.axis]
            steps = range(max(low, step.low), min(high, step.high))
            merged |= {p for p in blocks.rows if len(steps) > 1 and p[step.axis] in steps}
    if charges := [charge for charge in charges_of(story) if any(charge.row)]:
        charge = data.draw(st.sampled_from(charges))
        done = segments.subtract(charge.region, array(charge.row))
        assert done == (not points(charge.boxes) & merged)
        if done:
            blocks.subtract(points(charge.boxes), charge.row)
        check_same(segments, blocks)


@unhurried
@given(stories(merges=False), st.randoms())
def test_the_order_of_charges_does_not_matter(story: Story, chance: random.Random) -> None:
    *_, (_, blocks) = play(story)
    shuffled = charges_of(story)
    chance.shuffle(shuffled)
    segments = Segments(story.space, array(story.start))
    for charge in shuffled:
        segments.add(charge.region, array(charge.row))
    check_same(segments, blocks)


@unhurried
@given(stories(axes=(1, 3), row=small_rows), st.data())
def test_a_merge_lowers_no_amount_and_is_constant(story: Story, data: st.DataObject) -> None:
    *_, (segments, blocks) = play(story)
    axis = data.draw(st.integers(0, len(story.space) - 1))
    low, high = data.draw(within(-1, SIZE))
    before = segments.copy()
    segments.merge(axis, low, high)
    for point in blocks.rows:
        assert (segments.amounts_at(point) >= before.amounts_at(point)).all()
        if low <= point[axis] < high:
            first = (*point[:axis], max(low, story.space[axis][0]), *point[axis + 1 :])
            assert (segments.amounts_at(point) == segments.amounts_at(first)).all()
        else:
            assert (segments.amounts_at(point) == before.amounts_at(point)).all()


def no_column_fits(
    limit: Row,
) -> Callable[[SegmentAmounts, SegmentCells, SegmentAmounts], SegmentCells]:
    """A rule that is exceeded where every column exceeds its limit."""

    def breaks(spent: SegmentAmounts, cells: SegmentCells, cost: SegmentAmounts) -> SegmentCells:
        over = spent[:, cells] + cost[:, np.newaxis] > array(limit)[:, np.newaxis]
        return cells[over.all(axis=0)]

    return breaks


@pytest.mark.parametrize("kind", [Segments, Eager])
@unhurried
@given(story=stories(), data=st.data(), cost=rows, limit=rows)
def test_violating_cells_are_the_same_blocks(
    kind: type[Segments], story: Story, data: st.DataObject, cost: Row, limit: Row
) -> None:
    *_, (segments, blocks) = play(story, kind)
    boxes = data.draw(unions(story.space))
    cells_touched = segments.cells_touching(region_from_boxes(boxes))
    violating = no_column_fits(limit)(segments.amounts, cells_touched, array(cost))
    expected = blocks.exceeded_blocks(
        points(boxes), lambda row: all(a + c > m for a, c, m in zip(row, cost, limit, strict=True))
    )
    cells = cells_of(segments)
    assert points(cells[number] for number in violating) & points(boxes) == expected
    touched = segments.touched_cells(region_from_boxes(boxes))
    positions = np.flatnonzero(np.isin(touched.cells, violating))
    first = touched.point(touched.first(positions)) if len(positions) else None
    assert first == min(expected, default=None)


class KeepsWhatLiesAbove(Segments):
    """Canary: does not split at the upper bound of a box."""

    def _split_off(
        self, cells: SegmentCells, axis: int, at: int | SegmentAmounts, *, below: bool
    ) -> None:
        super()._split_off(cells[:0] if not below else cells, axis, at, below=below)


class MergesTooFew(Segments):
    """Canary: omits the last step of a merge."""

    def merge(self, axis: int, low: int, high: int) -> None:
        super().merge(axis, low, high - 1)


class JoinsAnything(Segments):
    """Canary: joins neighbours with different rows."""

    def _join_if_doubled(self) -> None:
        self._amounts[:] = self._amounts[:1]
        self._join()


@pytest.mark.parametrize("kind", [KeepsWhatLiesAbove, MergesTooFew, JoinsAnything])
def test_a_broken_variant_is_caught(kind: type[Segments]) -> None:
    @settings(database=None, deadline=None, derandomize=True, phases=[Phase.generate])
    @given(stories(axes=(1, 2)))
    def broken(story: Story) -> None:
        for segments, blocks in play(story, kind):
            check_same(segments, blocks)

    with pytest.raises(AssertionError):
        broken()


def test_equal_days_become_one_cell() -> None:
    segments = Segments(((700_000, 800_000),), array([0, 0]))
    for day in range(730_000, 731_000):
        segments.add(Region((((day, day + 1),),)), array([1, 2]))
    assert len(segments) <= 64
    assert segments.subtract(Region((((730_500, 730_501),),)), array([1, 2]))
    assert segments.amounts_at((730_499,)).tolist() == [1, 2]
    assert segments.amounts_at((730_500,)).tolist() == [0, 0]


def test_a_large_space_agrees_at_random_blocks() -> None:
    chance = random.Random(1)
    space = ((0, 204_800), (0, 32))
    segments = Segments(space, array([0, 0]))
    charges: list[tuple[Box, Row]] = []
    for number in range(300):
        first, cohort = chance.randrange(200_000), number // 15
        box = ((first, first + chance.randrange(1, 4_800)), (cohort, cohort + 12))
        charges.append((box, [chance.randrange(5), chance.randrange(5)]))
        segments.add(Region((box,)), array(charges[-1][1]))
    for _ in range(500):
        point = (chance.randrange(204_800), chance.randrange(32))
        met = [row for box, row in charges if contains(Region((box,)), point)]
        expected = [sum(column) for column in zip([0, 0], *met, strict=True)]
        assert segments.amounts_at(point).tolist() == expected


def test_invalid_arguments_are_refused() -> None:
    segments = Segments(((0, 4),), array([0, 0]))
    everywhere = Region((((0, 4),),))
    for row in ([1], [-1, 0]):
        with pytest.raises(InvariantBroken):
            segments.add(everywhere, array(row))
    with pytest.raises(InvariantBroken):
        segments.subtract(everywhere, array([1, 0]))
    with pytest.raises(InvariantBroken):
        segments.amounts_at((4,))
    with pytest.raises(InvariantBroken):
        Segments(((4, 4),), array([0, 0]))
