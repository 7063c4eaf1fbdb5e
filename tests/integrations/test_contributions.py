"""Limits on contributions: what is stated is never less than what a neighbour can change.

The sensitivities of whole chains against random neighbours on the naive twin, with canaries that
leave out one trap each of theory 5.4; and the two frames against the twin.
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
from tests.reference.contributions import Record, block, distances, histogram, kept

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

#: Nine days of two months and three weeks, neither within the other.
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

#: How a canary looks for a mistake; what it finds need not be small.
SEARCH = settings(
    max_examples=20_000, deadline=None, database=None, derandomize=True, phases=[Phase.generate]
)

JANUARY = (date(2026, 1, 1), date(2026, 1, 31))


@dataclass(frozen=True)
class Scene:
    """Two neighbouring databases, and what is computed of them."""

    limits: Contributions
    unit: PrivacyUnit
    relation: NeighbouringRelation
    about: tuple[date, date]
    one: tuple[Record, ...]
    other: tuple[Record, ...]

    @property
    def change(self) -> tuple[int, int]:
        """How far apart the two histograms are: L1, and L2 squared."""
        shown = [histogram(kept(d, self.limits), self.about) for d in (self.one, self.other)]
        return distances(*shown)


@st.composite
def spans(draw: st.DrawFn, days: list[date]) -> tuple[date, date]:
    ends = sorted([draw(st.sampled_from(days)), draw(st.sampled_from(days))])
    return ends[0], ends[1]


@st.composite
def all_limits(draw: st.DrawFn) -> Contributions:
    chain = draw(st.sampled_from(CHAINS))
    most = {name: draw(st.integers(1, 4)) for name in chain}
    per_cell = draw(st.sampled_from([None, None, 1, 2]))
    limits = contributions_from_limits(UNITS, most, draw(spans(DAYS)), per_cell)
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
    changed = days_of_one(unit, draw(st.sampled_from(DAYS)))
    rest = [r for r in records if r.person != "a" or r.day not in changed]
    if relation is NeighbouringRelation.CHANGE:
        new = draw(st.integers(0, 4))
        places = [day for day in DAYS if day in changed]
        rest += [
            Record("a", draw(st.sampled_from(places)), key, draw(_cell))
            for key, _ in zip(keys, range(new), strict=False)
        ]
    both = [tuple(records), tuple(rest)]
    return Scene(limits, unit, relation, draw(spans(within)), *both)


_cell = st.sampled_from("xyz")


def days_of_one(unit: PrivacyUnit, day: date) -> set[date]:
    """All days of one block of a unit."""
    if unit.period is not None and unit.period.kind is PeriodKind.SLIDING:
        return {day + timedelta(days=n) for n in range(unit.period.days)}
    return {other for other in DAYS if block(unit.period, other) == block(unit.period, day)}


def holds(scene: Scene, said: Callable[[Scene], Sensitivity]) -> bool:
    l1, square = scene.change
    return l1 <= said(scene).l1 and square <= said(scene).l2 ** 2


def stated(scene: Scene) -> Sensitivity:
    return scene.limits.sensitivity(scene.unit, scene.relation, scene.about)


@given(scenes())
@settings(max_examples=1500, deadline=None)
def test_no_neighbour_changes_more_than_is_stated(scene: Scene) -> None:
    assert holds(scene, stated)


def without_back_fill(scene: Scene) -> Sensitivity:
    """The mistake: a day's limit bounds what a day changes, whatever comes after it."""
    said = stated(scene)
    return Sensitivity(said.removed, 0, said.in_one_cell)


def only_the_coarsest(scene: Scene) -> Sensitivity:
    """The mistake: a group that a unit cuts is one group."""
    said, most = stated(scene), scene.limits.limits[-1].maximum
    return Sensitivity(min(said.removed, most), min(said.added, most), said.in_one_cell)


@pytest.mark.parametrize("wrong", [without_back_fill, only_the_coarsest])
def test_a_wrong_sensitivity_is_caught(wrong: Callable[[Scene], Sensitivity]) -> None:
    found = find(scenes(), lambda scene: not holds(scene, wrong), settings=SEARCH)
    assert holds(found, stated)


def test_back_fill_doubles_what_a_removed_day_changes() -> None:
    """The mistake of theory 5.4 at its smallest: two records go, two of another day come."""
    limits = contributions_from_limits(UNITS, {"user-day": 2, "user-month": 2}, (DAYS[0], DAYS[-1]))
    gone = [Record("a", DAYS[0], key, "x") for key in (0, 1)]
    rest = [Record("a", DAYS[1], key, "y") for key in (2, 3)]
    days = (DAYS[0], DAYS[1])
    scene = Scene(limits, DAY, NeighbouringRelation.ADD_REMOVE, days, (*gone, *rest), tuple(rest))
    assert scene.change == (4, 8)
    assert stated(scene).l1 == 4
    assert holds(scene, stated)
    assert not holds(scene, without_back_fill)


def test_cells_of_several_days_add_up() -> None:
    """The mistake: a cell has at most so many records of a day, so a change has no more."""
    limits = contributions_from_limits(UNITS, {"user-day": 2}, (DAYS[0], DAYS[-1]), per_cell=1)
    records = tuple(Record("a", day, key, "x") for key, day in enumerate(DAYS))
    scene = Scene(limits, USER, NeighbouringRelation.ADD_REMOVE, (DAYS[0], DAYS[-1]), records, ())
    assert holds(scene, stated)
    assert not holds(scene, lambda scene: Sensitivity(stated(scene).removed, 0, 1))


@given(scenes())
@settings(max_examples=500, deadline=None)
def test_no_other_day_is_read(scene: Scene) -> None:
    """What happens on days that are not stated as read changes nothing."""
    first, last = scene.limits.days_read(scene.about)
    read = [tuple(r for r in d if first <= r.day <= last) for d in (scene.one, scene.other)]
    for database, part in zip((scene.one, scene.other), read, strict=True):
        shown = [histogram(kept(d, scene.limits), scene.about) for d in (database, part)]
        assert shown[0] == shown[1]


def test_days_that_share_slots_are_read() -> None:
    """The canary of the test above: the days that are shown are not all that is read."""
    scene = find(scenes(), reads_more_than_it_shows, settings=SEARCH)
    assert scene.limits.days_read(scene.about) != scene.about


def reads_more_than_it_shows(scene: Scene) -> bool:
    first, last = scene.about
    part = tuple(r for r in scene.one if first <= r.day <= last)
    whole = histogram(kept(scene.one, scene.limits), scene.about)
    return whole != histogram(kept(part, scene.limits), scene.about)


# The figures of the theory


def sizes(limits: Contributions, unit: PrivacyUnit, relation: str = "add-remove") -> list[float]:
    said = limits.sensitivity(unit, NeighbouringRelation(relation))
    return [float(said.l1), round(float(said.l2) ** 2, 3)]


def test_a_monthly_limit_doubles_what_a_day_changes() -> None:
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


def test_a_release_states_every_unit_of_that_person() -> None:
    day = (date(2026, 1, 14), date(2026, 1, 14))
    both = contributions_from_limits(UNITS, {"user-day": 10, "user-month": 70}, JANUARY)
    said = both.mechanism_statement({"kind": "laplace", "scale": 20}, about=day)
    assert said == {
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


# What makes no sense


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"user-week": 5, "user-month": 9}, "`user-week` does not lie in one `user-month`"),
        ({"user-month": 5, "user-day": 9}, "`user-month` does not lie in one `user-day`"),
        ({"user-day": 5, "device": 9}, "does not lie in one `device`"),
        ({"user-3-days": 5}, "does not split time into blocks"),
        ({"user-day": 0}, "whole number from 1, not `0`"),
        ({"user-day": 1.5}, "whole number from 1"),
        ({"user-hour": 5}, "there is no unit `user-hour`"),
        ({}, "at least one limit"),
    ],
)
def test_limits_that_are_refused(limits: dict[str, int], why: str) -> None:
    with pytest.raises(OperationRejected, match=why):
        contributions_from_limits(UNITS, limits, JANUARY)


def test_questions_that_are_refused() -> None:
    limits = contributions_from_limits(UNITS, {"user-day": 1, "user-month": 30}, JANUARY)
    with pytest.raises(OperationRejected, match="leave none for each of its `user-day`"):
        limits.without_sharing()
    with pytest.raises(OperationRejected, match="say nothing of `device`"):
        limits.sensitivity(UNITS["device"], NeighbouringRelation.CHANGE)
    with pytest.raises(OperationRejected, match="under `replace`"):
        limits.sensitivity(DAY, NeighbouringRelation.REPLACE)
    with pytest.raises(OperationRejected, match="is not within"):
        limits.days_read((date(2025, 12, 31), JANUARY[1]))
    with pytest.raises(OperationRejected, match="without its sensitivity"):
        limits.mechanism_statement({"kind": "laplace", "scale": 1, "sensitivity": 1})
    with pytest.raises(OperationRejected, match="the noise of one of gaussian"):
        limits.mechanism_statement({"kind": "exponential", "epsilon": 1})


# Frames


def as_polars(records: tuple[Record, ...]) -> pl.DataFrame:
    schema = {"person": pl.String, "day": pl.Date, "key": pl.Int64, "cell": pl.String}
    return pl.DataFrame([vars(r) for r in records], schema=schema)


def as_pandas(records: tuple[Record, ...]) -> pd.DataFrame:
    frame = pd.DataFrame([vars(r) for r in records], columns=["person", "day", "key", "cell"])
    return frame.assign(day=pd.to_datetime(frame["day"]) + pd.Timedelta(hours=7))


@given(scenes())
@settings(max_examples=150, deadline=None)
def test_frames_keep_what_the_twin_keeps(scene: Scene) -> None:
    expected = Counter(r.key for r in kept(scene.one, scene.limits))
    cells = [] if scene.limits.per_cell is None else ["cell"]
    for frame in (as_polars(scene.one), as_pandas(scene.one)):
        found = bound_contributions(
            frame, scene.limits, entity="person", day="day", order=["key"], cells=cells
        )
        assert Counter(found["key"]) == expected


def test_rows_without_a_person_or_day_are_left_out() -> None:
    limits = contributions_from_limits(UNITS, {"user-day": 1}, JANUARY)
    rows = {"person": ["a", None, "a", "b"], "day": [JANUARY[0], JANUARY[0], None, JANUARY[1]]}
    frame = pl.DataFrame(rows, schema_overrides={"day": pl.Date})
    other = pd.DataFrame(rows).assign(day=pd.to_datetime(pd.Series(rows["day"])))
    for found in (
        bound_contributions(frame, limits, entity="person", day="day"),
        bound_contributions(other, limits, entity="person", day="day"),
    ):
        assert list(found["person"]) == ["a", "b"]


def test_a_day_is_that_of_the_zone_of_its_column() -> None:
    """Half past midnight and half past eleven in Zurich are one day, and two days in UTC."""
    limits = contributions_from_limits(UNITS, {"user-day": 1}, JANUARY)
    times = [datetime(2026, 1, 10, 0, 30), datetime(2026, 1, 10, 23, 30)]
    rows = {"person": ["a", "a"], "day": times}
    one = pl.DataFrame(rows).with_columns(pl.col("day").dt.replace_time_zone("Europe/Zurich"))
    other = pd.DataFrame(rows)
    other["day"] = other["day"].dt.tz_localize("Europe/Zurich")
    for frame in (one, other):
        assert len(bound_contributions(frame, limits, entity="person", day="day")) == 1


def test_a_person_that_is_no_number_is_nobody() -> None:
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
    with pytest.raises(OperationRejected, match="give `cells`"):
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
