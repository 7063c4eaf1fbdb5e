"""Contribution limits: a neighbour never changes a histogram by more than the stated sensitivity.

The tests compare sensitivities of chains of limits with random neighbours on the naive twin, and
the two DataFrame libraries with the twin. Each canary omits one effect of theory 5.4.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from tests.reference.contributions import Record, block, distances, histogram, limit_records

from dpolicy.errors import OperationRejected
from dpolicy.integrations.contribution_bounding import bound_contributions
from dpolicy.integrations.contributions import Contributions, Sensitivity, contributions_from_limits
from dpolicy.privacy.units.calendar import PeriodKind
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, parse_period

ROOT = Path(__file__).parents[2]

UNITS = {
    "user-day": PrivacyUnit("user-day", "user", parse_period("day")),
    "user-week": PrivacyUnit("user-week", "user", parse_period("week")),
    "user-month": PrivacyUnit("user-month", "user", parse_period("month")),
    "user-2-days": PrivacyUnit("user-2-days", "user", parse_period("2 days from 2024-01-28")),
    "user-3-days": PrivacyUnit("user-3-days", "user", parse_period("sliding 3 days")),
    "user-5-days": PrivacyUnit("user-5-days", "user", parse_period("sliding 5 days")),
    "user": PrivacyUnit("user", "user"),
    "device": PrivacyUnit("device", "device"),
}
DAY, MONTH, USER = UNITS["user-day"], UNITS["user-month"], UNITS["user"]

#: Nine days in two months and three weeks; the weeks do not lie within the months.
DAYS = [date(2024, 1, 27) + timedelta(days=n) for n in range(9)]

CHAINS = (
    ("user-day",),
    ("user-week",),
    ("user-2-days",),
    ("user",),
    ("user-day", "user-month"),
    ("user-day", "user-week"),
    ("user-day", "user-2-days"),
    ("user-week", "user"),
    ("user-day", "user-month", "user"),
)

#: Settings of a canary: it needs any counterexample, not a small one.
SEARCH = settings(
    max_examples=20_000, deadline=None, database=None, derandomize=True, phases=[Phase.generate]
)

JANUARY = (date(2026, 1, 1), date(2026, 1, 31))


@dataclass(frozen=True)
class Scene:
    """Two neighbouring databases and the histogram that is computed from them."""

    limits: Contributions
    unit: PrivacyUnit
    relation: NeighbouringRelation
    about: tuple[date, date]
    one: tuple[Record, ...]
    other: tuple[Record, ...]

    @property
    def change(self) -> tuple[int, int]:
        """L1 distance and squared L2 distance of the two histograms."""
        databases = (self.one, self.other)
        histograms = [histogram(limit_records(d, self.limits), self.about) for d in databases]
        return distances(*histograms)


@st.composite
def spans(draw: st.DrawFn, days: list[date]) -> tuple[date, date]:
    ends = sorted([draw(st.sampled_from(days)), draw(st.sampled_from(days))])
    return ends[0], ends[1]


@st.composite
def all_limits(draw: st.DrawFn) -> Contributions:
    chain = draw(st.sampled_from(CHAINS))
    maxima = {name: draw(st.integers(1, 4)) for name in chain}
    per_cell = draw(st.sampled_from([None, None, 1, 2]))
    limits = contributions_from_limits(UNITS, maxima, draw(spans(DAYS)), per_cell)
    try:
        return limits.without_sharing() if draw(st.booleans()) else limits
    except OperationRejected:
        return limits


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    limits = draw(all_limits())
    within = [day for day in DAYS if limits.first <= day <= limits.last]
    unit = UNITS[draw(st.sampled_from([name for name in UNITS if name != "device"]))]
    relation = draw(st.sampled_from([NeighbouringRelation.ADD_REMOVE, NeighbouringRelation.CHANGE]))
    keys = iter(draw(st.permutations(range(24))))
    size = draw(st.integers(1, 20))
    records = [
        Record(draw(st.sampled_from("aab")), draw(st.sampled_from(DAYS)), key, draw(_cell))
        for key, _ in zip(keys, range(size), strict=False)
    ]
    changed = days_in_block(unit, draw(st.sampled_from(DAYS)))
    neighbour = [r for r in records if r.person != "a" or r.day not in changed]
    if relation is NeighbouringRelation.CHANGE:
        new = draw(st.integers(0, 4))
        changed_days = [day for day in DAYS if day in changed]
        neighbour += [
            Record("a", draw(st.sampled_from(changed_days)), key, draw(_cell))
            for key, _ in zip(keys, range(new), strict=False)
        ]
    both = [tuple(records), tuple(neighbour)]
    return Scene(limits, unit, relation, draw(spans(within)), *both)


_cell = st.sampled_from("xyz")


def days_in_block(unit: PrivacyUnit, day: date) -> set[date]:
    """Return all days of the block of a unit that contains a day."""
    if unit.period is not None and unit.period.kind is PeriodKind.SLIDING:
        return {day + timedelta(days=n) for n in range(unit.period.days)}
    return {other for other in DAYS if block(unit.period, other) == block(unit.period, day)}


def is_bound(scene: Scene, sensitivity: Callable[[Scene], Sensitivity]) -> bool:
    l1, square = scene.change
    return l1 <= sensitivity(scene).l1 and square <= sensitivity(scene).l2 ** 2


def correct_sensitivity(scene: Scene) -> Sensitivity:
    return scene.limits.sensitivity(scene.unit, scene.relation, scene.about)


@given(scenes())
@settings(max_examples=1500, deadline=None)
def test_no_neighbour_changes_more_than_the_sensitivity(scene: Scene) -> None:
    assert is_bound(scene, correct_sensitivity)


def without_back_fill(scene: Scene) -> Sensitivity:
    """Mistake: ignore that a coarser limit lets in records of other days."""
    correct = correct_sensitivity(scene)
    return Sensitivity(correct.removed, 0, correct.in_one_cell)


def only_the_coarsest(scene: Scene) -> Sensitivity:
    """Mistake: count the groups that a unit overlaps as one group."""
    correct, limit = correct_sensitivity(scene), scene.limits.limits[-1].maximum
    return Sensitivity(min(correct.removed, limit), min(correct.added, limit), correct.in_one_cell)


@pytest.mark.parametrize("wrong", [without_back_fill, only_the_coarsest])
def test_a_wrong_sensitivity_is_caught(wrong: Callable[[Scene], Sensitivity]) -> None:
    counterexample = find(scenes(), lambda scene: not is_bound(scene, wrong), settings=SEARCH)
    assert is_bound(counterexample, correct_sensitivity)


def test_back_fill_doubles_the_change_of_a_removed_day() -> None:
    """Smallest example of theory 5.4: two records are removed, two of another day are let in."""
    limits = contributions_from_limits(UNITS, {"user-day": 2, "user-month": 2}, (DAYS[0], DAYS[-1]))
    removed = [Record("a", DAYS[0], key, "x") for key in (0, 1)]
    others = [Record("a", DAYS[1], key, "y") for key in (2, 3)]
    days = (DAYS[0], DAYS[1])
    scene = Scene(
        limits, DAY, NeighbouringRelation.ADD_REMOVE, days, (*removed, *others), tuple(others)
    )
    assert scene.change == (4, 8)
    assert correct_sensitivity(scene).l1 == 4
    assert is_bound(scene, correct_sensitivity)
    assert not is_bound(scene, without_back_fill)


def test_cells_of_several_days_add_up() -> None:
    """Mistake: use the limit of a cell per day for a change of several days."""
    limits = contributions_from_limits(UNITS, {"user-day": 2}, (DAYS[0], DAYS[-1]), per_cell=1)
    records = tuple(Record("a", day, key, "x") for key, day in enumerate(DAYS))
    scene = Scene(limits, USER, NeighbouringRelation.ADD_REMOVE, (DAYS[0], DAYS[-1]), records, ())
    assert is_bound(scene, correct_sensitivity)
    assert not is_bound(scene, lambda scene: Sensitivity(correct_sensitivity(scene).removed, 0, 1))


@given(scenes())
@settings(max_examples=500, deadline=None)
def test_no_other_day_is_read(scene: Scene) -> None:
    """Records on days outside `days_read` do not change the histogram."""
    first, last = scene.limits.days_read(scene.about)
    read = [tuple(r for r in d if first <= r.day <= last) for d in (scene.one, scene.other)]
    for database, part in zip((scene.one, scene.other), read, strict=True):
        whole, partial = (
            histogram(limit_records(d, scene.limits), scene.about) for d in (database, part)
        )
        assert whole == partial


def test_days_that_share_slots_are_read() -> None:
    """Canary of the test above: a histogram can read more days than those that it counts."""
    scene = find(scenes(), reads_other_days, settings=SEARCH)
    assert scene.limits.days_read(scene.about) != scene.about


def reads_other_days(scene: Scene) -> bool:
    first, last = scene.about
    part = tuple(r for r in scene.one if first <= r.day <= last)
    whole = histogram(limit_records(scene.one, scene.limits), scene.about)
    return whole != histogram(limit_records(part, scene.limits), scene.about)


# Numbers of the theory


def sizes(limits: Contributions, unit: PrivacyUnit, relation: str = "add-remove") -> list[float]:
    sensitivity = limits.sensitivity(unit, NeighbouringRelation(relation))
    return [float(sensitivity.l1), round(float(sensitivity.l2) ** 2, 3)]


def test_a_monthly_limit_doubles_the_change_of_a_day() -> None:
    daily = contributions_from_limits(UNITS, {"user-day": 10}, JANUARY)
    both = contributions_from_limits(UNITS, {"user-day": 10, "user-month": 70}, JANUARY)
    assert sizes(daily, DAY) == [10, 100]
    assert sizes(both, DAY) == [20, 200]
    assert sizes(daily, DAY, "change") == sizes(both, DAY, "change") == sizes(both, DAY)
    assert sizes(daily, MONTH) == [310, 310**2]
    assert sizes(both, MONTH) == [70, 70**2]
    assert sizes(both, MONTH, "change") == [140, 2 * 70**2]


def test_a_monthly_limit_reads_the_whole_month_for_one_day() -> None:
    day = (date(2026, 1, 14), date(2026, 1, 14))
    both = contributions_from_limits(UNITS, {"user-day": 10, "user-month": 70}, JANUARY)
    assert both.days_read(day) == JANUARY
    assert both.sensitivity(MONTH, NeighbouringRelation.ADD_REMOVE, day).l1 == 10
    quota = both.without_sharing()
    assert [(limit.unit.name, limit.maximum) for limit in quota.limits] == [("user-day", 2)]
    assert quota.days_read(day) == day
    assert quota.sensitivity(DAY, NeighbouringRelation.ADD_REMOVE, day).l1 == 2
    assert sizes(quota, MONTH)[0] == 62


def test_a_week_of_a_month_has_larger_quotas() -> None:
    week = (date(2026, 1, 5), date(2026, 1, 11))
    both = contributions_from_limits(UNITS, {"user-day": 10, "user-month": 70}, week)
    assert both.without_sharing().limits[0].maximum == 10


def test_records_of_distinct_cells_add_squared() -> None:
    day = (date(2026, 1, 14), date(2026, 1, 14))
    limits = contributions_from_limits(UNITS, {"user-day": 10}, JANUARY, per_cell=1)
    assert limits.sensitivity(DAY, NeighbouringRelation.ADD_REMOVE, day).l2 ** 2 == pytest.approx(
        10
    )
    assert limits.sensitivity(DAY, NeighbouringRelation.ADD_REMOVE, day).l2 ** 2 >= 10
    assert limits.sensitivity(MONTH, NeighbouringRelation.ADD_REMOVE).l2 ** 2 == pytest.approx(
        31 * 310
    )


def test_a_release_states_every_unit_of_the_entity() -> None:
    day = (date(2026, 1, 14), date(2026, 1, 14))
    both = contributions_from_limits(UNITS, {"user-day": 10, "user-month": 70}, JANUARY)
    fields = both.mechanism_statement({"kind": "laplace", "scale": 20}, about=day)
    assert fields == {
        "mechanism": {"kind": "laplace", "scale": 20, "sensitivity": Fraction(20)},
        "unit": "user-day",
        "relation": "add-remove",
        "also": {
            "user-week": {"sensitivity": Fraction(20)},
            "user-month": {"sensitivity": Fraction(10)},
            "user-2-days": {"sensitivity": Fraction(20)},
            "user-3-days": {"sensitivity": Fraction(20)},
            "user-5-days": {"sensitivity": Fraction(20)},
            "user": {"sensitivity": Fraction(10)},
        },
        "time": {"from": JANUARY[0], "to": JANUARY[1]},
    }
    gaussian = both.mechanism_statement(
        {"kind": "gaussian", "sigma": 20}, NeighbouringRelation.CHANGE
    )
    assert gaussian["relation"] == "change"
    assert gaussian["mechanism"]["sensitivity"] == Fraction("14.142135624")


# Invalid limits


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"user-week": 5, "user-month": 9}, "`user-week` does not lie in one `user-month`"),
        ({"user-month": 5, "user-day": 9}, "`user-month` does not lie in one `user-day`"),
        ({"user-day": 5, "device": 9}, "does not lie in one `device`"),
        ({"user-3-days": 5}, "does not split time into blocks; help: limit another unit"),
        ({"user-day": 0}, "an integer of at least 1, got `0`"),
        ({"user-day": 1.5}, "an integer of at least 1, got `1.5`"),
        ({"user-hour": 5}, "there is no unit `user-hour`"),
        ({}, "at least one limit"),
    ],
)
def test_limits_that_are_refused(limits: dict[str, int], message: str) -> None:
    with pytest.raises(OperationRejected, match=message):
        contributions_from_limits(UNITS, limits, JANUARY)


def test_calls_that_are_refused() -> None:
    limits = contributions_from_limits(UNITS, {"user-day": 1, "user-month": 30}, JANUARY)
    with pytest.raises(OperationRejected, match="leave none for each of its `user-day`"):
        limits.without_sharing()
    with pytest.raises(OperationRejected, match="do not bound `device`"):
        limits.sensitivity(UNITS["device"], NeighbouringRelation.CHANGE)
    with pytest.raises(OperationRejected, match="under `replace`"):
        limits.sensitivity(DAY, NeighbouringRelation.REPLACE)
    with pytest.raises(OperationRejected, match="is not within"):
        limits.days_read((date(2025, 12, 31), JANUARY[1]))
    with pytest.raises(OperationRejected, match="without its sensitivity"):
        limits.mechanism_statement({"kind": "laplace", "scale": 1, "sensitivity": 1})
    with pytest.raises(OperationRejected, match="the noise of one of gaussian"):
        limits.mechanism_statement({"kind": "exponential", "epsilon": 1})


# DataFrames


def as_polars(records: tuple[Record, ...]) -> pl.DataFrame:
    schema = {"person": pl.String, "day": pl.Date, "key": pl.Int64, "cell": pl.String}
    return pl.DataFrame([vars(r) for r in records], schema=schema)


def as_pandas(records: tuple[Record, ...]) -> pd.DataFrame:
    frame = pd.DataFrame([vars(r) for r in records], columns=["person", "day", "key", "cell"])
    return frame.assign(day=pd.to_datetime(frame["day"]) + pd.Timedelta(hours=7))


@given(scenes())
@settings(max_examples=150, deadline=None)
def test_frames_keep_what_the_twin_keeps(scene: Scene) -> None:
    expected = Counter(r.key for r in limit_records(scene.one, scene.limits))
    cells = [] if scene.limits.per_cell is None else ["cell"]
    for frame in (as_polars(scene.one), as_pandas(scene.one)):
        bounded = bound_contributions(
            frame, scene.limits, entity="person", day="day", order=["key"], cells=cells
        )
        assert Counter(bounded["key"]) == expected


def test_rows_without_a_person_or_day_are_dropped() -> None:
    limits = contributions_from_limits(UNITS, {"user-day": 1}, JANUARY)
    rows = {"person": ["a", None, "a", "b"], "day": [JANUARY[0], JANUARY[0], None, JANUARY[1]]}
    frame = pl.DataFrame(rows, schema_overrides={"day": pl.Date})
    other = pd.DataFrame(rows).assign(day=pd.to_datetime(pd.Series(rows["day"])))
    for bounded in (
        bound_contributions(frame, limits, entity="person", day="day"),
        bound_contributions(other, limits, entity="person", day="day"),
    ):
        assert list(bounded["person"]) == ["a", "b"]


def test_the_time_zone_of_a_column_determines_the_day() -> None:
    """00:30 and 23:30 in Zurich are on the same day, but on two days in UTC."""
    limits = contributions_from_limits(UNITS, {"user-day": 1}, JANUARY)
    times = [datetime(2026, 1, 10, 0, 30), datetime(2026, 1, 10, 23, 30)]
    rows = {"person": ["a", "a"], "day": times}
    one = pl.DataFrame(rows).with_columns(pl.col("day").dt.replace_time_zone("Europe/Zurich"))
    other = pd.DataFrame(rows)
    other["day"] = other["day"].dt.tz_localize("Europe/Zurich")
    for frame in (one, other):
        assert len(bound_contributions(frame, limits, entity="person", day="day")) == 1


def test_rows_with_nan_as_person_are_dropped() -> None:
    limits = contributions_from_limits(UNITS, {"user-day": 1}, JANUARY)
    rows = {"person": [math.nan, math.nan, 7.0], "day": [JANUARY[0]] * 3}
    for frame in (
        pl.DataFrame(rows),
        pd.DataFrame(rows).assign(day=pd.to_datetime(pd.Series(rows["day"]))),
    ):
        assert list(bound_contributions(frame, limits, entity="person", day="day")["person"]) == [
            7.0
        ]


def test_rows_keep_their_order_where_none_is_given() -> None:
    limits = contributions_from_limits(UNITS, {"user-day": 2}, JANUARY)
    rows = {"person": ["a", "b", "a", "a"], "key": [3, 1, 2, 0], "day": [JANUARY[0]] * 4}
    for frame in (
        pl.DataFrame(rows),
        pd.DataFrame(rows).assign(day=pd.to_datetime(pd.Series(rows["day"]))),
    ):
        assert list(bound_contributions(frame, limits, entity="person", day="day")["key"]) == [
            3,
            1,
            2,
        ]


def test_frames_that_are_refused() -> None:
    limits = contributions_from_limits(UNITS, {"user-day": 2}, JANUARY)
    text = {"person": ["a"], "day": ["2026-01-01"]}
    for frame in (pl.DataFrame(text), pd.DataFrame(text)):
        with pytest.raises(OperationRejected, match="column `day` must hold dates"):
            bound_contributions(frame, limits, entity="person", day="day")
    for other in (pl.DataFrame(text).lazy(), text):
        with pytest.raises(OperationRejected, match="a DataFrame of Polars or pandas"):
            bound_contributions(other, limits, entity="person", day="day")
    with pytest.raises(OperationRejected, match="give `cells` if and only if"):
        bound_contributions(pl.DataFrame(text), limits, entity="person", day="day", cells=["page"])


def test_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = (ROOT / "examples" / "contributions" / "policy.yaml").read_text("utf-8")
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "policy.yaml").write_text(policy, "utf-8")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "integrations" / "contributions.md").read_text("utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    rows = {"user": [1] * 99, "key": range(99), "day": [JANUARY[0]] * 9 + [JANUARY[1]] * 90}
    names: dict[str, Any] = {"frame": pl.DataFrame(rows)}
    exec(code, names)
    assert len(names["kept"]) == 19
    assert names["mechanism"]["mechanism"]["sensitivity"] == 20
