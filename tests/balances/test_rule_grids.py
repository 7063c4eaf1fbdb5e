"""Rules that share a grid have the same balances and checks as with segments of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import segments_by_rule as twin
from tests.reference.segments_by_rule import RuleCheck, SegmentsByRule

from dpolicy.balances import rule_grids
from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedSection, enforce
from dpolicy.balances.rule_grids import RuleGrid, RuleGrids
from dpolicy.balances.segments import Segments
from dpolicy.decisions import tightest_blocks
from dpolicy.decisions.decide import charges_at_most, check_charges
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.privacy.units.privacy_units import TouchedDays
from dpolicy.releases.regions import Region
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

POLICY = """
dpolicy: 1
accounting: {delta: 1e-7, relation: change, orders: [2, 8, 64], uncovered: allowCOLLAPSE}
units:
  user: {}
  user-day: {period: day}
  user-month: {period: month}
  user-window: {of: user, period: sliding 3 days}
schema:
  attributes: {country: {}, views: {}}
  partitions:
    country: {values: [AT, CH, DE, FR], of: user}
    slot: {from: -3, to: LAST, of: user}
policies:
  - {name: life, kind: custom, when: always, unit: user, budget: {epsilon: 3}}
  - {name: leak, kind: custom, when: '"views" in attributes', unit: user, budget: {epsilon: 2}}
  - {name: split, kind: custom, when: '"country" in attributes', unit: user, budget: {epsilon: 2}}
  - {name: zcdp, kind: custom, when: always, unit: user, budget: {rho: 1}}
  - {name: none, kind: custom, when: always, unit: user, budget: unlimited}
  - {name: day, kind: custom, when: always, unit: user-day, budget: {epsilon: 1}}
  - {name: day-pure, kind: custom, when: always, unit: user-day, budget: {epsilon: 1, delta: 0}}
  - {name: day-mu, kind: custom, when: always, unit: user-day, budget: {mu: 1}}
  - {name: month, kind: custom, when: always, unit: user-month, budget: {epsilon: 2}}
  - {name: renyi, kind: custom, when: always, unit: user-month, budget: {renyi: {2: 1, 8: 2}}}
  - {name: window, kind: custom, when: always, unit: user-window, budget: {epsilon: 2}}
"""
DAYS = [date(2023, 1, 31), date(2023, 2, 1), date(2023, 12, 31), date(2024, 1, 1), date(2026, 3, 9)]


@cache
def section(collapse: str, last: int) -> EnforcedSection:
    text = POLICY.replace("COLLAPSE", collapse).replace("LAST", str(last))
    return enforce(compile_policy([Source("p.yaml", text)])).cumulative


#: The last space has points whose keys do not fit into 64 bits.
SECTIONS = st.sampled_from(
    [
        ("", 6),
        (", collapse: {after: 12 months, into: year}", 6),
        (", collapse: {after: 12 months, into: month}", 10**12),
    ]
)


@st.composite
def regions(draw: st.DrawFn, of: EnforcedSection) -> Region | None:
    country = st.lists(st.sampled_from(["AT", "CH", "DE", "FR"]), min_size=1, unique=True)
    slots = st.tuples(st.integers(-3, 6), st.integers(-3, 6)).map(lambda p: (min(p), max(p)))
    box = st.fixed_dictionaries({}, optional={"country": country.map(tuple), "slot": slots})
    days = st.tuples(st.sampled_from(DAYS), st.integers(0, 40)).map(
        lambda p: (p[0].toordinal(), p[0].toordinal() + p[1])
    )
    touched = st.none() | st.lists(days, min_size=1, max_size=2).map(
        lambda intervals: TouchedDays(tuple(intervals))
    )
    where: Any = draw(st.lists(box, max_size=3))
    return of.granularities.space.region(where, draw(touched))


@st.composite
def charges(draw: st.DrawFn, of: EnforcedSection, cutoff: int) -> Charge:
    """Charges with rows that are zero, tiny, a part of a bound, a bound, or infinite."""
    count = len(of.compiled.rules)
    numbers = np.array(sorted(draw(st.sets(st.integers(0, count - 1), min_size=1))), np.intp)
    limits = of.bounds_for(numbers).maximum
    parts = draw(
        st.lists(
            st.sampled_from([0, 0, 1, 2, 3, 3, 4, 4, 4, 5, 5, 6, 7]),
            min_size=limits.size,
            max_size=limits.size,
        )
    )
    finite = np.where((limits < 0) | (limits >= INFINITE), 10**11, limits)
    choices = np.stack(
        [
            *(0 * finite, 0 * finite + 1, 0 * finite + INFINITE),
            *(finite // 9, finite // 3, finite // 2, finite, finite + 1),
        ]
    )
    rows = np.take_along_axis(choices, np.array(parts).reshape(1, *limits.shape), axis=0)[0]
    if draw(st.booleans()):  # rules of a release have the same costs, most often
        rows = np.broadcast_to(rows[:1], rows.shape).copy()
    return Charge(numbers, rows, draw(regions(of)), cutoff)


@dataclass
class Pair:
    """Balances with shared grids, and their twin."""

    section: EnforcedSection
    shared: Balances
    separate: SegmentsByRule

    @staticmethod
    def zero(of: EnforcedSection) -> Pair:
        shared = of.empty_balances()
        separate = SegmentsByRule.zero(of.granularities, shared.finite.shape[1])
        return Pair(of, shared, separate)

    def add(self, charge: Charge, count: int) -> None:
        self.shared.add(charge, count)
        self.separate.add(charge, count)

    def check_same_balances(self) -> None:
        for balances in (self.shared, self.shared.copy(), stored(self.shared)):
            inside = set(np.flatnonzero(balances.grids.grid_by_rule >= 0).tolist())
            assert inside == self.separate.segments.keys()
        for number in range(len(self.section.compiled.rules)):
            if number in self.separate.segments:
                expected = self.separate.segments[number]
                for balances in (self.shared, self.shared.copy(), stored(self.shared)):
                    check_same_function(balances.segments_for(number), expected)
            else:
                loss = self.shared.uniform_losses(np.array([number]))[0]
                assert loss.tolist() == self.separate.uniform_loss(number).tolist()

    def check_same_checks(self, requested: list[Charge]) -> None:
        expected = twin.check_rules(self.section, self.separate, requested)
        checks = check_charges(self.section, self.shared, requested)
        actual = {}
        for position, number in enumerate(checks.rule_numbers.tolist()):
            block = checks.tightest_cells.get(position)
            spent, cost = checks.spent[position].tolist(), checks.cost[position].tolist()
            assert block is None or block.first_block[1].tolist() == spent
            point = None if block is None else block.first_block[0]
            actual[number] = RuleCheck(bool(checks.holds[position]), spent, cost, point)
        assert actual == expected


def stored(balances: Balances) -> Balances:
    """Return balances whose grids were written to arrays and read again."""
    grids = RuleGrids.empty(balances.grids.space, len(balances.grids.grid_by_rule))
    for grid in balances.grids.grids:
        grids.store(RuleGrid.from_arrays(grid.to_arrays()))
    return Balances(balances.granularities, balances.finite, balances.infinite, grids)


def check_same_function(actual: Segments, expected: Segments) -> None:
    """Compare two step functions in every cell of the product of their borders."""
    parts = [actual.to_arrays(), expected.to_arrays()]
    borders = [
        np.unique(np.concatenate([part["low"][axis] for part in parts]))
        for axis in range(len(actual.space))
    ]
    assert (dense_table(parts[0], borders) == dense_table(parts[1], borders)).all()


def dense_table(parts: dict[str, Any], borders: list[LossArray]) -> LossArray:
    table = np.full((*map(len, borders), len(parts["amounts"])), -1, np.int64)
    for cell in range(parts["low"].shape[1]):
        inside = tuple(
            slice(*np.searchsorted(starts, [parts["low"][axis, cell], parts["high"][axis, cell]]))
            for axis, starts in enumerate(borders)
        )
        assert (table[inside] == -1).all()
        table[inside] = parts["amounts"][:, cell]
    assert (table >= 0).all()
    return table


#: Small limits, so that grids are split and new rules get grids of their own; large ones.
SHARED = st.sampled_from([0, 100, 600, 2**20])
COMPARED = st.sampled_from([0, 20, 2**14])


@settings(deadline=None, max_examples=150)
@given(st.data(), SECTIONS, SHARED, COMPARED)
def test_rules_that_share_a_grid_agree_with_separate_ones(
    data: st.DataObject, of: tuple[str, int], max_shared: int, max_compared: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_grids, "MAX_SHARED_AMOUNTS", max_shared)
        patch.setattr(tightest_blocks, "MAX_COMPARED_AMOUNTS", max_compared)
        play(data, section(*of))


def play(data: st.DataObject, of: EnforcedSection) -> None:
    pair, recorded, cutoff = Pair.zero(of), list[tuple[Charge, int]](), 0
    steps = st.sampled_from(["add", "add", "add", "subtract", "collapse", "check"])
    for step in data.draw(st.lists(steps, min_size=1, max_size=9)):
        if step == "add":
            recorded.append((data.draw(charges(of, cutoff)), data.draw(st.sampled_from([1, 3]))))
            pair.add(*recorded[-1])
        elif step == "subtract" and recorded:
            removed = recorded.pop(data.draw(st.integers(0, len(recorded) - 1)))
            subtract(pair, removed, recorded, cutoff)
        elif step == "collapse":
            day = data.draw(st.sampled_from([d for d in DAYS if d.year > 2023]))
            cutoff = max(cutoff, of.granularities.cutoff(day.toordinal()))
            pair.shared.collapse_time(cutoff)
            pair.separate.collapse_time(cutoff)
        pair.check_same_balances()
        requested = data.draw(st.lists(charges(of, cutoff), min_size=1, max_size=3))
        pair.check_same_checks(requested)


def subtract(
    pair: Pair, removed: tuple[Charge, int], recorded: list[tuple[Charge, int]], cutoff: int
) -> None:
    """Subtract a charge from both; recompute what cannot be subtracted from."""
    is_done, expected = pair.shared.subtract(*removed), pair.separate.subtract(*removed)
    if not cutoff:
        assert is_done == expected
    assert expected or not is_done
    zero = Pair.zero(pair.section)
    if not is_done:
        pair.shared = zero.shared
    if not expected:
        pair.separate = zero.separate
    for changed, balances in ((not is_done, pair.shared), (not expected, pair.separate)):
        for charge, count in recorded if changed else ():
            balances.add(charge, count)
        if changed:
            balances.collapse_time(cutoff)


@settings(deadline=None, max_examples=100)
@given(st.data(), SECTIONS)
def test_limits_of_charges_agree_with_the_naive_twin(
    data: st.DataObject, of: tuple[str, int]
) -> None:
    few = st.lists(charges(section(*of), 0), min_size=1, max_size=3)
    first, limits = data.draw(few), data.draw(few)
    for pair in ((first, limits), (first, [*first, *limits]), (first, first)):
        assert charges_at_most(section(*of), *pair) == twin.charges_at_most(section(*of), *pair)


# Canaries: the comparison detects a grid that confuses its rules


def charge_rules(of: EnforcedSection, names: tuple[str, ...], country: str) -> Charge:
    """Return a charge of other costs to each rule, in one country."""
    by_name = {rule.name: number for number, rule in enumerate(of.compiled.rules)}
    numbers = np.array(sorted(by_name[name] for name in names), np.intp)
    parts = np.arange(2, 2 + len(numbers))[:, np.newaxis]
    limits = np.minimum(np.maximum(of.bounds_for(numbers).maximum, 10**9), 10**11)
    region = of.granularities.space.region([{"country": (country,)}], None)
    return Charge(numbers, limits // (4 * parts), region, 0)


def compare_few_charges() -> None:
    """Charge rules that share a grid: all of them, some of them, and one that joins the grid."""
    of = section("", 6)
    pair = Pair.zero(of)
    for names, country in (
        (("life", "zcdp"), "AT"),
        (("zcdp",), "CH"),
        (("life", "leak"), "AT"),
        (("leak",), "DE"),
    ):
        pair.add(charge_rules(of, names, country), 1)
        pair.check_same_balances()
        pair.check_same_checks([charge_rules(of, ("life", "leak", "zcdp"), "AT")])


def test_few_charges_agree_with_separate_ones() -> None:
    compare_few_charges()


def write_into_the_wrong_place(patch: pytest.MonkeyPatch) -> None:
    """Let a charge of some rules of a grid change the rules beside them."""
    real = RuleGrid.row

    def shift(self: RuleGrid, places: Any, losses: LossArray) -> LossArray:
        return real(self, (places + 1) % len(self.rules), losses)

    patch.setattr(RuleGrid, "row", shift)


def forget_the_places(patch: pytest.MonkeyPatch) -> None:
    """Keep the old places of rules when a rule joins the grid."""
    real = RuleGrids._record_places

    def record(self: RuleGrids, number: int) -> None:
        old, was_inside = self.place_by_rule.copy(), self.grid_by_rule >= 0
        real(self, number)
        self.place_by_rule[was_inside] = old[was_inside]

    patch.setattr(RuleGrids, "_record_places", record)


def append_in_the_wrong_order(patch: pytest.MonkeyPatch) -> None:
    """Sort the rules of a grid, but not their losses."""

    def append(self: RuleGrid, rules: Any, losses: LossArray) -> None:
        self.rules = np.sort(np.concatenate([self.rules, rules]))
        self.segments.append_columns(
            losses.reshape(-1), self._columns(np.arange(len(self.rules), dtype=np.intp))
        )

    patch.setattr(RuleGrid, "append", append)


@pytest.mark.parametrize(
    "mistake", [write_into_the_wrong_place, forget_the_places, append_in_the_wrong_order]
)
def test_a_grid_that_confuses_its_rules_is_detected(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        compare_few_charges()
