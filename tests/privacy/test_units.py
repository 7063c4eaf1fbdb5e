"""Group sizes against brute force over real calendars (T7), and the order of periods (4.5)."""

from __future__ import annotations

import random
import re
from datetime import date, timedelta
from pathlib import Path

import pytest
from tests.reference import calendar_days as brute

from dpolicy.errors import InvalidValue
from dpolicy.privacy.units import calendar, privacy_units
from dpolicy.privacy.units.calendar import (
    DAY,
    HALF,
    ISO_YEAR,
    MONTH,
    QUARTER,
    SUNDAY_WEEK,
    WEEK,
    YEAR,
    Period,
    sliding,
    tumbling,
)
from dpolicy.privacy.units.privacy_units import (
    MAX_INTERVALS,
    add_remove_size,
    blocks_between,
    group_size,
    parse_period,
    period_within,
    tighter_add_remove_size,
    touched_days,
)

CALENDAR = [DAY, WEEK, SUNDAY_WEEK, MONTH, QUARTER, HALF, YEAR, ISO_YEAR]

#: Theory 4.4, rows src, columns dst in the order of CALENDAR.
GROUP_SIZES = [
    [1, 7, 7, 31, 92, 184, 366, 371],
    [1, 1, 2, 6, 14, 28, 54, 53],
    [1, 2, 1, 6, 14, 28, 54, 54],
    [1, 2, 2, 1, 3, 6, 12, 14],
    [1, 2, 2, 1, 1, 2, 4, 6],
    [1, 2, 2, 1, 1, 1, 2, 4],
    [1, 2, 2, 1, 1, 1, 1, 3],
    [1, 1, 2, 2, 2, 2, 3, 1],
]

LENGTHS = [1, 2, 7, 8, 14, 28, 29, 30, 31, 60, 90, 91, 92, 180, 365, 366, 730]
SLIDING = {
    DAY: LENGTHS,
    WEEK: [1, 2, 2, 2, 3, 5, 5, 6, 6, 10, 14, 14, 14, 27, 53, 54, 106],
    MONTH: [1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4, 5, 5, 7, 13, 13, 25],
    QUARTER: [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 5, 5, 9],
    YEAR: [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3],
}


def block_key(period: Period) -> brute.Key:
    if period.kind in brute.KEYS:
        return brute.KEYS[str(period)]
    assert period.start is not None
    return brute.tumbling_key(period.days, period.start)


@pytest.mark.parametrize("row", range(len(CALENDAR)))
def test_table_of_calendar_units(row: int) -> None:
    assert [group_size(CALENDAR[row], dst, None) for dst in CALENDAR] == GROUP_SIZES[row]


@pytest.mark.parametrize("src", SLIDING, ids=str)
def test_table_of_sliding_units(src: Period) -> None:
    assert [group_size(src, sliding(n), None) for n in LENGTHS] == SLIDING[src]


def test_whole_cycle_by_brute_force() -> None:
    """Every pair of calendar periods, counted day by day over 400 years."""
    days = brute.days_between(date(1996, 1, 1), date(2401, 12, 31))
    keys = {p: [brute.KEYS[str(p)](d) for d in days] for p in CALENDAR}
    for s, src in enumerate(CALENDAR):
        for d, dst in enumerate(CALENDAR):
            met: dict[object, set[object]] = {}
            for a, b in zip(keys[dst], keys[src], strict=True):
                met.setdefault(a, set()).add(b)
            assert max(map(len, met.values())) == GROUP_SIZES[s][d], (src, dst)


@pytest.mark.parametrize(
    ("days", "dst", "size"),
    [
        *[(7, MONTH, 5), (30, MONTH, 2), (31, MONTH, 1), (30, QUARTER, 4)],
        *[(30, YEAR, 13), (365, YEAR, 2), (366, YEAR, 1)],
    ],
)
def test_sliding_source_covers(days: int, dst: Period, size: int) -> None:
    assert group_size(sliding(days), dst, None) == size


def test_day_counts_divided_and_rounded_up_are_unsound() -> None:
    july = brute.days_between(date(2000, 7, 1), date(2000, 7, 31))
    assert len({brute.KEYS["week"](d) for d in july}) == 6 > -(-31 // 7)
    year = brute.days_between(date(2012, 1, 1), date(2012, 12, 31))
    assert len({brute.KEYS["week"](d) for d in year}) == 54 > -(-366 // 7)


def random_period(rng: random.Random) -> Period:
    start = date(2020, 1, 1) + timedelta(days=rng.randrange(400))
    return rng.choice([*CALENDAR, tumbling(rng.randint(2, 45), start)])


@pytest.mark.parametrize("seed", range(6))
def test_touched_days_by_brute_force(seed: int) -> None:
    """k_T for partitions of every kind and one to three intervals of days."""
    rng = random.Random(seed)
    for _ in range(60):
        src, dst = random_period(rng), random_period(rng)
        intervals = []
        for _ in range(rng.randint(1, 3)):
            first = date(2023, 1, 1) + timedelta(days=rng.randrange(700))
            intervals.append(
                (first, first + timedelta(days=rng.randrange(rng.choice([1, 40, 400]))))
            )
        read = {d for a, b in intervals for d in brute.days_between(a, b)}
        dst_blocks = brute.group_by_block(block_key(dst), sorted(read))
        days = touched_days(*intervals)
        assert group_size(src, dst, days) == brute.max_touched_blocks(block_key(src), dst_blocks), (
            src,
            dst,
        )
        assert group_size(src, None, days) == len({block_key(src)(d) for d in read})
        size = add_remove_size(src, dst, days)
        assert size is not None
        removed = max(brute.steps_to_remove(block_key(src), b, read) for b in dst_blocks)
        assert removed <= size <= 2 * removed, (src, dst, intervals)


@pytest.mark.parametrize("seed", range(3))
def test_touched_days_of_sliding_windows_by_brute_force(seed: int) -> None:
    rng = random.Random(100 + seed)
    for _ in range(25):
        src, length = random_period(rng), rng.randint(2, 60)
        first = date(2023, 1, 1) + timedelta(days=rng.randrange(700))
        last = first + timedelta(days=rng.randrange(120))
        read = brute.days_between(first, last)
        expected = brute.max_touched_blocks(block_key(src), brute.windows(read, length), set(read))
        assert group_size(src, sliding(length), touched_days((first, last))) == expected
        cover = -(-min(length, len(read)) // 9)
        assert group_size(sliding(9), sliding(length), touched_days((first, last))) == cover


@pytest.mark.parametrize("seed", range(3))
def test_windows_cut_the_blocks_that_they_meet(seed: int) -> None:
    """Removal steps for sliding targets, for which `period_within` is not enough."""
    rng = random.Random(200 + seed)
    assert period_within(WEEK, sliding(7)) and add_remove_size(WEEK, sliding(7), None) == 4
    assert add_remove_size(DAY, sliding(7), None) == 7
    assert add_remove_size(sliding(7), sliding(31), None) == 5
    for _ in range(25):
        src, length = random_period(rng), rng.randint(2, 60)
        first = date(2023, 1, 1) + timedelta(days=rng.randrange(700))
        days = brute.days_between(first, first + timedelta(days=rng.randrange(120)))
        for dst in (sliding(length), tumbling(length)):
            size = add_remove_size(src, dst, touched_days((days[0], days[-1])))
            windows = brute.windows(days, length)
            removed = max(brute.steps_to_remove(block_key(src), w, set(days)) for w in windows)
            assert size is not None and removed <= size, (src, dst)


def test_tumbling_periods_by_brute_force() -> None:
    """The formula with the greatest common divisor, at every phase."""
    origin = date(2024, 1, 1)
    for n, m in [(2, 3), (4, 6), (6, 4), (7, 7), (10, 30), (30, 10), (12, 18)]:
        days = brute.days_between(origin, origin + timedelta(days=3 * n * m))
        for phase in range(m):
            src = tumbling(n, origin)
            dst = tumbling(m, origin + timedelta(days=phase))
            whole = [b for b in brute.group_by_block(block_key(dst), days) if len(b) == m]
            assert group_size(src, dst, None) == brute.max_touched_blocks(block_key(src), whole), (
                n,
                m,
                phase,
            )
        assert group_size(tumbling(n), sliding(m), None) == -(-(m - 1) // n) + 1


def test_one_day_is_one_unit_of_anything() -> None:
    day = touched_days((date(2026, 10, 28), date(2026, 10, 28)))
    for src in [*CALENDAR, sliding(30), tumbling(30), tumbling(9, date(2026, 1, 5)), None]:
        for dst in [*CALENDAR, sliding(30), tumbling(30), None]:
            assert group_size(src, dst, day) == add_remove_size(src, dst, day) == 1


def test_all_time_is_unbounded() -> None:
    assert group_size(DAY, None, None) is None
    assert group_size(MONTH, None, touched_days((date(2026, 1, 1), None))) is None
    assert group_size(DAY, MONTH, touched_days((None, date(2026, 1, 1)))) == 31
    assert group_size(None, MONTH, None) == group_size(None, None, None) == 1
    assert add_remove_size(None, MONTH, None) == 2
    assert add_remove_size(None, None, None) == 1


def test_partly_removed_blocks_take_two_steps() -> None:
    """A month cuts two weeks: 4 whole ones and 2 cut ones, 8 steps where `change` has 6."""
    july = (date(2000, 7, 1), date(2000, 7, 31))
    read = set(brute.days_between(date(2000, 6, 1), date(2000, 8, 31)))
    assert brute.steps_to_remove(brute.KEYS["week"], brute.days_between(*july), read) == 8
    assert add_remove_size(WEEK, MONTH, None) == 8
    assert add_remove_size(DAY, MONTH, None) == 31
    assert add_remove_size(MONTH, QUARTER, None) == 3


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_windows_inside_a_block_by_search(length: int, size: int) -> None:
    """Seven days are read. The block starts on the second day, or in phase with the week."""
    first, last = date(2026, 3, 2), date(2026, 3, 8)
    days = touched_days((first, last))
    dst = tumbling(size, first + timedelta(days=1))
    spans = brute.group_by_block(block_key(dst), brute.days_between(first, last))
    worst = max(
        brute.steps_between(7, length, ((span[0] - first).days, (span[-1] - first).days))
        for span in spans
    )
    charged = tighter_add_remove_size(sliding(length), dst, days)
    assert charged is not None and worst <= charged <= max(worst, 2)
    cut = group_size(sliding(length), dst, days)
    if length > size and size > 1:  # canary: one step per window is too few for a longer window
        assert cut == 1 < worst == charged


def test_windows_inside_a_month_are_counted_once() -> None:
    assert add_remove_size(sliding(7), MONTH, None) == 10
    assert tighter_add_remove_size(sliding(7), MONTH, None) == 5
    assert tighter_add_remove_size(sliding(30), MONTH, None) == 2
    assert tighter_add_remove_size(sliding(40), MONTH, None) == 2
    assert tighter_add_remove_size(tumbling(7), MONTH, None) == 8
    for src in (*CALENDAR, None):
        for dst in (*CALENDAR, sliding(9), None):
            assert tighter_add_remove_size(src, dst, None) == add_remove_size(src, dst, None)


PERIODS = [
    *CALENDAR,
    sliding(7),
    sliding(30),
    sliding(31),
    sliding(92),
    sliding(366),
    tumbling(10, date(2026, 1, 5)),
    tumbling(30, date(2026, 1, 5)),
    tumbling(30, date(2026, 1, 7)),
    tumbling(30),
    None,
]


def test_order_is_a_partial_order() -> None:
    for a in PERIODS:
        assert period_within(a, a)
        assert period_within(a, None)
        assert period_within(DAY, a)
        for b in PERIODS:
            assert a == b or not (period_within(a, b) and period_within(b, a)), (a, b)
            for c in PERIODS:
                assert period_within(a, c) or not (period_within(a, b) and period_within(b, c)), (
                    a,
                    b,
                    c,
                )


def test_order_of_theory() -> None:
    chain: list[Period | None] = [DAY, MONTH, QUARTER, HALF, YEAR, None]
    assert all(
        period_within(a, b) == (i <= j) for i, a in enumerate(chain) for j, b in enumerate(chain)
    )
    assert period_within(WEEK, ISO_YEAR)
    assert period_within(WEEK, sliding(7))
    assert period_within(MONTH, sliding(31)) and not period_within(MONTH, sliding(30))
    assert period_within(QUARTER, sliding(92)) and period_within(YEAR, sliding(366))
    assert period_within(tumbling(10, date(2026, 1, 5)), tumbling(30, date(2026, 1, 5)))
    assert not period_within(tumbling(10, date(2026, 1, 5)), tumbling(30, date(2026, 1, 7)))
    assert period_within(tumbling(30), sliding(30)) and not period_within(sliding(30), tumbling(30))
    for a, b in [(WEEK, SUNDAY_WEEK), (WEEK, MONTH), (WEEK, YEAR), (ISO_YEAR, YEAR)]:
        assert not period_within(a, b) and not period_within(b, a)


@pytest.mark.parametrize("text", [str(p) for p in PERIODS if p])
def test_text_round_trip(text: str) -> None:
    assert str(parse_period(text)) == text


def test_equal_partitions_are_equal() -> None:
    assert parse_period("7 days from 2026-10-26") == WEEK
    assert parse_period("7 days from 2026-10-25") == SUNDAY_WEEK
    assert parse_period("1 day") == parse_period("sliding 1 days") == DAY
    assert parse_period("30 days from 2026-01-05") == parse_period("30 days from 2026-02-04")
    assert parse_period("30 days") != parse_period("30 days from 2026-02-04")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("fortnight", "U001"),
        ("", "U001"),
        ("month ", "U001"),
        ("sliding 3 days from 2026-01-01", "U001"),
        ("-3 days", "U001"),
        ("0 days", "U002"),
        ("999999999 days", "U002"),
        ("30 days from 2026-02-30", "U003"),
        ("30 days from 0001-01-01", "U003"),
    ],
)
def test_bad_periods(text: str, code: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_period(text)
    assert caught.value.code == code


def test_bad_intervals() -> None:
    day = date(2026, 1, 1)
    for bad in ([], [(day, day)] * (MAX_INTERVALS + 1), [(day, day - timedelta(days=1))]):
        with pytest.raises(InvalidValue) as caught:
            touched_days(*bad)
        assert caught.value.code == "U004"
    with pytest.raises(InvalidValue, match="U003"):
        touched_days((date(9999, 12, 31), None))


def test_every_code_has_a_title() -> None:
    sources = [
        Path(module.__file__ or "").read_text("utf-8") for module in (calendar, privacy_units)
    ]
    used = {code for text in sources for code in re.findall(r"\"(U[0-9]{3})\",", text)}
    assert used == set(calendar.PROBLEMS)


def test_intervals_are_joined() -> None:
    a, b, c = date(2026, 1, 1), date(2026, 1, 9), date(2026, 1, 20)
    assert touched_days((b, c), (a, b)) == touched_days((a, c))
    assert touched_days((a, b), (b + timedelta(days=1), c)) == touched_days((a, c))
    assert touched_days((None, b), (a, None)) == touched_days((None, None))


@pytest.mark.parametrize("period", [*CALENDAR, tumbling(10, date(2026, 1, 5))], ids=str)
def test_blocks_by_brute_force(period: Period) -> None:
    first, last = date(2024, 2, 11), date(2026, 3, 3)
    blocks = blocks_between(period, first, last)
    expected = brute.group_by_block(block_key(period), brute.days_between(first, last))
    assert len(blocks) == len(expected)
    for block, days in zip(blocks, expected, strict=True):
        assert block.first <= days[0] and days[-1] <= block.last
        assert (
            block_key(period)(block.first)
            == block_key(period)(block.last)
            == block_key(period)(days[0])
        )
    assert list(blocks) == sorted(blocks)


def test_blocks_of_windows_are_all_windows() -> None:
    day = date(2026, 1, 10)
    windows = blocks_between(sliding(3), day, day)
    assert [b.first.day for b in windows] == [8, 9, 10]
    assert blocks_between(tumbling(3), day, day) == windows
    with pytest.raises(InvalidValue, match="U005"):
        blocks_between(DAY, date(1600, 1, 1), date(2600, 1, 1))


def test_long_scans_fall_back_to_an_upper_bound() -> None:
    days = touched_days((date(1700, 1, 1), date(2500, 12, 31)))
    assert group_size(MONTH, tumbling(3, date(2026, 1, 1)), days) == 2
    assert group_size(tumbling(50, date(2026, 1, 1)), tumbling(3, date(2026, 1, 3)), days) == 2
