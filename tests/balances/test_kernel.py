"""The kernels decide and charge exactly as the code for single rules does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.pdp.builders import noise
from tests.reference.rule_rows import SlowCells, SlowRows

from dpolicy.balances.enforced_policy import EnforcedSection, enforce
from dpolicy.balances.kernel import numpy_kernel
from dpolicy.balances.kernel.kernel import KERNEL_NAME, load_compiled_kernel
from dpolicy.balances.kernel.numpy_kernel import TightRule
from dpolicy.decisions.decide import charges_by_region, decide
from dpolicy.decisions.reasons import MAX_REASONS, reasons_for
from dpolicy.decisions.resolution import resolve_release
from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.privacy.privacy_filter import NEVER
from dpolicy.releases.body import release_from_body
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

COMPILED = load_compiled_kernel()
KERNELS: list[Any] = [numpy_kernel, COMPILED] if COMPILED else [numpy_kernel]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda m: m.__name__.split(".")[-1])


def test_the_compiled_kernel_is_built_if_there_is_a_compiler() -> None:
    assert COMPILED or not shutil.which("cc"), "run: cythonize -i src/dpolicy/balances/kernel/*.pyx"


# Random rows


@dataclass(frozen=True)
class Case:
    """Arguments of a kernel, and balances."""

    arguments: tuple[Any, ...]
    finite: LossArray
    infinite: NDArray[np.int32]


def matrix(draw: Any, entries: st.SearchStrategy[Any], rows: int, width: int, kind: Any) -> Any:
    listed = draw(st.lists(entries, min_size=rows * width, max_size=rows * width))
    return np.array(listed, kind).reshape(rows, width)


SMALL = st.integers(0, 4)
AMOUNTS = SMALL | st.integers(0, INFINITE) | st.sampled_from([INFINITE - 1, INFINITE])
LIMITS = AMOUNTS | st.sampled_from([NEVER, 0, INFINITE - 1, INFINITE])
GENEROUS = st.sampled_from([8, 9, 10**15, INFINITE - 1, INFINITE, INFINITE, INFINITE])
ADDED = st.integers(-4, 4) | st.integers(-INFINITE, INFINITE)
RESERVES = st.integers(-1, 4) | st.integers(-1, INFINITE)


@st.composite
def cases(draw: Any) -> Case:
    width, policy_rules = draw(st.integers(2, 5)), draw(st.integers(1, 8))
    chosen = draw(st.sets(st.integers(0, policy_rules - 1)))
    rules = len(chosen)
    is_generous = draw(st.booleans())
    amounts = SMALL if is_generous else AMOUNTS
    is_displayed = matrix(
        draw, draw(st.sampled_from([st.booleans(), st.just(False)])), rules, width, np.bool_
    )
    is_displayed[:, draw(st.integers(0, width - 1))] = True
    counts = st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, 2])
    return Case(
        (
            np.array(sorted(chosen), np.intp),
            matrix(draw, amounts, rules, width, np.int64),
            matrix(draw, GENEROUS if is_generous else LIMITS, rules, width, np.int64),
            matrix(draw, st.booleans(), rules, 1, np.bool_).reshape(-1),
            matrix(draw, ADDED, rules, width, np.int64),
            is_displayed,
            matrix(draw, draw(st.sampled_from([st.just(-1), RESERVES])), 1, width, np.int64)[0],
        ),
        matrix(draw, amounts, policy_rules, width, np.int64),
        matrix(draw, counts, policy_rules, width, np.int32),
    )


def results(rows_type: Callable[..., Any], case: Case) -> tuple[Any, ...]:
    """Return a decision, the balances after a charge, and the decision after it."""
    rows = rows_type(*(argument.copy() for argument in case.arguments))
    finite, infinite = case.finite.copy(), case.infinite.copy()
    first = rows.decide(finite, infinite)
    exceeded = rows.find_exceeded(finite, infinite)
    rows.charge(finite, infinite)
    after = rows.decide(finite, infinite)
    return first, finite.tolist(), infinite.tolist(), after, exceeded


@each_kernel
@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_a_kernel_gives_the_results_of_the_slow_code(kernel: ModuleType, case: Case) -> None:
    assert results(kernel.RuleRows, case) == results(SlowRows, case)


@each_kernel
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_kernel_agrees_on_many_rules_far_from_their_limits(kernel: ModuleType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rules, width = int(rng.integers(1, 200)), int(rng.integers(2, 14))
    shape = rules, width
    displayed = rng.random(shape) < 0.7
    displayed[:, 0] = True
    case = Case(
        (
            np.sort(rng.choice(300, rules, replace=False)).astype(np.intp),
            rng.integers(0, 10**12, shape),
            rng.integers(10**13, INFINITE, shape),
            rng.random(rules) < 0.5,
            rng.integers(-(10**12), 10**12, shape),
            displayed,
            rng.integers(-(10**12), 10**12, width),
        ),
        rng.integers(0, 9 * 10**12, (300, width)),
        np.zeros((300, width), np.int32),
    )
    first, *_ = results(kernel.RuleRows, case)
    assert first is not None and len(first) == min(rules, MAX_REASONS)
    assert results(kernel.RuleRows, case) == results(SlowRows, case)


# Rules in a grid


@dataclass(frozen=True)
class GridCase:
    """Arguments of a kernel for a grid, the amounts of the grid, and the charged cells."""

    arguments: tuple[Any, ...]
    amounts: LossArray
    cells: NDArray[np.intp]


@st.composite
def grid_cases(draw: Any) -> GridCase:
    case = draw(cases())
    count, (places, width) = draw(st.integers(1, 6)), case.finite.shape
    amounts = SMALL if draw(st.booleans()) else AMOUNTS
    chosen = draw(st.permutations(range(count)))[: draw(st.integers(1, count))]
    rows = matrix(draw, amounts, count, places * width, np.int64)
    return GridCase(case.arguments, rows, np.array(chosen, np.intp))


def grid_results(rows_type: Callable[..., Any], case: GridCase) -> tuple[Any, ...]:
    """Return a decision, exceeded rules, the amounts after a charge, and the decision after it."""
    rows = rows_type(*(argument.copy() for argument in case.arguments))
    amounts = case.amounts.copy()
    first, exceeded = (step(amounts, case.cells) for step in (rows.decide, rows.find_exceeded))
    rows.charge(amounts, case.cells)
    return first, exceeded, amounts.tolist(), rows.decide(amounts, case.cells)


@each_kernel
@settings(max_examples=300, deadline=None)
@given(case=grid_cases())
def test_a_kernel_compares_a_grid_as_the_slow_code(kernel: ModuleType, case: GridCase) -> None:
    assert grid_results(kernel.GridRows, case) == grid_results(SlowCells, case)


class WithTheFirstCell(numpy_kernel.GridRows):
    """Compares the first cell only with the other rules."""

    def _find_fullest(self, spent: LossArray) -> NDArray[np.intp]:
        return np.zeros(len(spent), np.intp)


class WithOneCheckedCell(numpy_kernel.GridRows):
    """Compares the first cell only with the limits."""

    def _are_within(self, rows: LossArray) -> NDArray[np.bool_]:
        within = super()._are_within(rows)
        return np.repeat(within[:, :1], within.shape[1], axis=1)


class WithOneChargedCell(numpy_kernel.GridRows):
    """Charges the first cell only."""

    def charge(self, amounts: LossArray, cells: NDArray[np.intp]) -> None:
        super().charge(amounts, cells[:1])


@pytest.mark.parametrize("wrong", [WithTheFirstCell, WithOneCheckedCell, WithOneChargedCell])
def test_random_grids_reveal_a_wrong_kernel(wrong: type[numpy_kernel.GridRows]) -> None:
    find(
        grid_cases(),
        lambda case: grid_results(wrong, case) != grid_results(SlowCells, case),
        settings=settings(
            max_examples=4000,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
        ),
    )


@each_kernel
def test_results_name_rules_by_their_positions(kernel: Any) -> None:
    positions = np.array([7, 9], np.intp)
    finite, infinite = np.zeros((4, 3), np.int64), np.zeros((4, 3), np.int32)
    rows = kernel.RuleRows(*arguments(), positions)
    assert sorted(rule[1] for rule in rows.decide(finite, infinite)) == [7, 9]
    with pytest.raises(InvariantBroken, match="positions"):
        kernel.RuleRows(*arguments(), positions[:1])


@each_kernel
@pytest.mark.parametrize("operation", ["decide", "find_exceeded", "charge"])
@pytest.mark.parametrize(
    ("amounts", "cells", "error"),
    [
        (np.zeros((2, 11), np.int64), [0], InvariantBroken),
        (np.zeros((2, 9), np.int64), [0], InvariantBroken),
        (np.zeros((2, 12), np.int64), [2], InvariantBroken),
        (np.zeros((2, 12), np.int64), [-1], InvariantBroken),
        (np.zeros((2, 12), np.int64), [], InvariantBroken),
        (np.zeros((2, 12)), [0], ValueError),
    ],
)
def test_cells_outside_of_a_grid_are_refused(
    kernel: Any, operation: str, amounts: Any, cells: list[int], error: type[Exception]
) -> None:
    rows = kernel.GridRows(*arguments())
    with pytest.raises(error):
        getattr(rows, operation)(amounts, np.array(cells, np.intp))
    assert not amounts.any()


# Canaries: wrong kernels that the random rows must reveal


class WithoutDeltaShare(numpy_kernel.RuleRows):
    """Compares the certificates only."""

    def decide(self, finite: Any, infinite: Any) -> list[TightRule] | None:
        self._is_unlimited[:, -1] = True
        return super().decide(finite, infinite)


class WithoutInfiniteTerms(numpy_kernel.RuleRows):
    """Forgets that a rule was charged an infinite term."""

    def decide(self, finite: Any, infinite: Any) -> list[TightRule] | None:
        return super().decide(finite, np.zeros_like(infinite))


class WithReversedTies(numpy_kernel.RuleRows):
    """Lists the later of two rules with the same share first."""

    def decide(self, finite: Any, infinite: Any) -> list[TightRule] | None:
        tightest = super().decide(finite, infinite)
        return tightest and sorted(tightest, key=lambda rule: (rule[0], -rule[1]))


class WithoutSaturation(numpy_kernel.RuleRows):
    """Adds finite terms without a limit."""

    def charge(self, finite: Any, infinite: Any) -> None:
        terms = np.where(self._is_infinite, 0, self._cost)
        total = finite[self._numbers] + terms
        super().charge(finite, infinite)
        finite[self._numbers] = total


class WithFiniteDisplay(numpy_kernel.RuleRows):
    """Adds to infinite amounts, too, so that they may be displayed as finite."""

    def _displayed_quanta(self, amounts: Any, positions: Any) -> Any:
        return super()._displayed_quanta(np.minimum(amounts, INFINITE - 1), positions)


class WithoutReserves(numpy_kernel.RuleRows):
    """Takes the smallest amount for the variance."""

    def _needed_variances(self, amounts: LossArray) -> LossArray:
        self._reserves[:] = 0
        return super()._needed_variances(amounts)


class WithAnotherRounding(numpy_kernel.RuleRows):
    """Computes a share by another formula, which differs in the last bit only."""

    def decide(self, finite: Any, infinite: Any) -> list[TightRule] | None:
        tightest = super().decide(finite, infinite)
        return tightest and [(_change_last_bit(rule[0]), *rule[1:]) for rule in tightest]


def _change_last_bit(share: float) -> float:
    """Return the float next to a share that is not exact in few bits."""
    return share if share * 64 == int(share * 64) else float(np.nextafter(share, 0))


WRONG = [
    WithoutDeltaShare,
    WithoutInfiniteTerms,
    WithReversedTies,
    WithoutSaturation,
    WithFiniteDisplay,
    WithoutReserves,
    WithAnotherRounding,
]


@pytest.mark.parametrize("wrong", WRONG)
def test_random_rows_reveal_a_wrong_kernel(wrong: type[numpy_kernel.RuleRows]) -> None:
    find(
        cases(),
        lambda case: results(wrong, case) != results(SlowRows, case),
        settings=settings(
            max_examples=4000,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
        ),
    )


# Decisions under a policy

POLICY = """dpolicy: 1
accounting: {delta: 1e-7, profile: classic}
schema:
  categories: {place: {risk: high}, use: {risk: low}}
  attributes:
    zip: {risk: high, member: [place]}
    city: {risk: high, strong: [place]}
    views: {risk: low, member: [use]}
    time: {risk: low, weak: [use]}
policies:
  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 6}}
  - {name: attr, kind: attribute, unit: user, budgets: {low: {epsilon: 5}, high: {rho: 0.4}}}
  - {name: cat, kind: category, unit: user, budgets: {low: {mu: 2}, high: {epsilon: 3}}}
"""
MECHANISMS = st.fixed_dictionaries(
    {
        "mechanism": st.sampled_from(
            [
                noise(kind="laplace", scale=4),
                noise(kind="gaussian", sigma=5),
                noise(kind="gaussian", sigma=20),
                noise(epsilon="0.3", delta="1e-8"),
                noise(rho="0.01"),
            ]
        ),
        "unit": st.just("user"),
        "attributes": st.lists(
            st.sampled_from(["zip", "city", "views", "time"]), min_size=1, unique=True
        ),
    }
)


def rows_for(
    kernel: ModuleType, section: EnforcedSection, numbers: NDArray[np.intp], cost: LossArray
) -> Any:
    """Return the rows of a release; each rule displays one number."""
    bounds = section.bounds_for(numbers)
    added, is_displayed = np.zeros_like(cost), np.zeros(cost.shape, np.bool_)
    for position, number in enumerate(numbers.tolist()):
        (figure,) = section.formatter_for(number).figures
        added[position, figure.columns] = figure.added
        is_displayed[position, figure.columns] = True
    reserves = section.display_columns.reserves
    arrays = (cost, bounds.maximum, bounds.require_all, added, is_displayed, reserves)
    return kernel.RuleRows(numbers, *map(np.ascontiguousarray, arrays))


ENFORCED = enforce(compile_policy([Source("policy.yaml", POLICY)]))


@each_kernel
@settings(max_examples=40, deadline=None)
@given(releases=st.lists(st.lists(MECHANISMS, min_size=1, max_size=3), min_size=1, max_size=8))
def test_a_kernel_gives_the_verdicts_and_reasons_of_a_policy(
    kernel: ModuleType, releases: list[list[Any]]
) -> None:
    section = ENFORCED.cumulative
    balances = section.empty_balances()
    for mechanisms in releases:
        body = {"release": "r", "mechanisms": mechanisms}
        resolved, problems = resolve_release(release_from_body(body), ENFORCED)
        assert not problems
        verdict = decide(ENFORCED, balances, resolved)
        (checks,) = verdict.checks
        rows = rows_for(kernel, section, checks.rule_numbers, checks.cost)
        tightest = rows.decide(balances.finite, balances.infinite)
        assert (tightest is not None) == verdict.allowed
        if tightest is None:
            continue
        reasons = reasons_for(verdict, lambda *_: ())
        assert len(reasons) == len(tightest)
        for reason, (_, position, *quanta) in zip(reasons, tightest, strict=True):
            formatter = section.formatter_for(int(checks.rule_numbers[position]))
            (figure,) = formatter.figures
            assert reason.rule == section.describe_rule(checks.rule_numbers[position])["rule"]
            displayed = [reason.spent[figure.name], reason.after[figure.name]]
            assert displayed == [figure.format_amount(amount) for amount in quanta[:2]]
        charged = balances.copy()
        rows.charge(charged.finite, charged.infinite)
        matches = [section.compiled.index.match(m.predicate_input) for m in resolved]
        for charge in charges_by_region(section, resolved, matches):
            balances.add(charge, 1)
        assert np.array_equal(charged.finite, balances.finite)
        assert np.array_equal(charged.infinite, balances.infinite)


# Arguments


def arguments(**changes: Any) -> list[Any]:
    """Return arguments for two rules with three columns, with some of them replaced."""
    values: dict[str, Any] = {
        "numbers": np.array([1, 3], np.intp),
        "cost": np.ones((2, 3), np.int64),
        "maximum": np.full((2, 3), 10, np.int64),
        "require_all": np.array([True, False]),
        "added": np.zeros((2, 3), np.int64),
        "is_displayed": np.ones((2, 3), np.bool_),
        "reserves": np.array([-1, 5, -1], np.int64),
    }
    return list((values | changes).values())


@each_kernel
@pytest.mark.parametrize(
    "changes",
    [
        {"numbers": np.array([1, 3], np.int32)},
        {"numbers": np.array([[1, 3]], np.intp)},
        {"numbers": np.array([1, 0, 3, 0], np.intp)[::2]},
        {"cost": np.ones((2, 3))},
        {"cost": np.ones((2, 3), np.uint64)},
        {"maximum": np.ones((3, 2), np.int64).T},
        {"maximum": np.ones((2, 3), ">i8")},
        {"require_all": np.array([1, 0])},
        {"require_all": np.array([1, 0], np.int8)},
        {"added": np.zeros(6, np.int64)},
        {"is_displayed": np.ones((2, 6), np.bool_)[:, ::2]},
        {"reserves": np.zeros((1, 3), np.int64)},
        {"reserves": np.zeros(3, np.int32)},
    ],
)
def test_an_array_of_a_wrong_type_or_layout_is_refused(kernel: Any, changes: Any) -> None:
    with pytest.raises(ValueError):
        kernel.RuleRows(*arguments(**changes))


@each_kernel
@pytest.mark.parametrize(
    "changes",
    [
        {"numbers": np.array([1, 2, 3], np.intp)},
        {"numbers": np.array([3, 1], np.intp)},
        {"numbers": np.array([1, 1], np.intp)},
        {"numbers": np.array([-1, 1], np.intp)},
        {"cost": np.full((2, 3), -1, np.int64)},
        {"cost": np.ones((2, 1), np.int64)},
        {"maximum": np.ones((2, 4), np.int64)},
        {"require_all": np.array([True])},
        {"added": np.zeros((1, 3), np.int64)},
        {"is_displayed": np.zeros((2, 3), np.bool_)},
        {"is_displayed": np.ones((2, 2), np.bool_)},
        {"reserves": np.zeros(2, np.int64)},
        {"reserves": np.zeros(4, np.int64)},
    ],
)
def test_an_array_with_a_wrong_content_is_refused(kernel: Any, changes: Any) -> None:
    with pytest.raises(InvariantBroken):
        kernel.RuleRows(*arguments(**changes))


@each_kernel
@pytest.mark.parametrize("operation", ["decide", "charge"])
@pytest.mark.parametrize(
    ("finite", "infinite", "error"),
    [
        (np.zeros((3, 3), np.int64), np.zeros((3, 3), np.int32), InvariantBroken),
        (np.zeros((4, 2), np.int64), np.zeros((4, 2), np.int32), InvariantBroken),
        (np.zeros((4, 3), np.int64), np.zeros((3, 3), np.int32), InvariantBroken),
        (np.zeros((4, 3), np.int64), np.zeros((4, 3), np.int64), ValueError),
        (np.zeros((4, 3)), np.zeros((4, 3), np.int32), ValueError),
        (np.zeros((8, 3), np.int64)[::2], np.zeros((4, 3), np.int32), ValueError),
    ],
)
def test_balances_of_a_wrong_shape_or_type_are_refused(
    kernel: Any, operation: str, finite: Any, infinite: Any, error: type[Exception]
) -> None:
    rows = kernel.RuleRows(*arguments())
    with pytest.raises(error):
        getattr(rows, operation)(finite, infinite)
    assert not finite.any() and not infinite.any()


@each_kernel
def test_read_only_balances_can_be_read_and_not_charged(kernel: Any) -> None:
    finite, infinite = np.zeros((4, 3), np.int64), np.zeros((4, 3), np.int32)
    finite.setflags(write=False)
    rows = kernel.RuleRows(*arguments())
    assert rows.decide(finite, infinite)
    with pytest.raises(ValueError):
        rows.charge(finite, infinite)


@each_kernel
def test_later_changes_of_the_arguments_have_no_effect(kernel: Any) -> None:
    values = arguments()
    finite, infinite = np.zeros((4, 3), np.int64), np.zeros((4, 3), np.int32)
    rows = kernel.RuleRows(*values)
    before = rows.decide(finite, infinite)
    for value in values:
        value[:] = 99
    assert rows.decide(finite, infinite) == before


@each_kernel
def test_an_infinite_amount_is_displayed_as_infinite(kernel: Any) -> None:
    finite, infinite = np.zeros((4, 3), np.int64), np.ones((4, 3), np.int32)
    limits, added = np.full((2, 3), INFINITE, np.int64), np.full((2, 3), -5, np.int64)
    tightest = kernel.RuleRows(*arguments(maximum=limits, added=added)).decide(finite, infinite)
    assert tightest == [(2.0, n, *6 * (INFINITE,)) for n in (0, 1)]


@each_kernel
def test_a_cost_above_infinite_is_infinite(kernel: Any) -> None:
    finite, infinite = np.zeros((4, 3), np.int64), np.zeros((4, 3), np.int32)
    rows = kernel.RuleRows(*arguments(cost=np.full((2, 3), INFINITE + 5, np.int64)))
    assert rows.decide(finite, infinite) is None
    rows.charge(finite, infinite)
    assert not finite.any() and infinite.sum(axis=1).tolist() == [0, 3, 0, 3]


@each_kernel
def test_a_count_of_infinite_terms_does_not_overflow(kernel: Any) -> None:
    finite, infinite = np.zeros((4, 3), np.int64), np.zeros((4, 3), np.int32)
    infinite[3, 2] = np.iinfo(np.int32).max
    before = infinite.copy()
    rows = kernel.RuleRows(*arguments(cost=np.full((2, 3), INFINITE, np.int64)))
    with pytest.raises(InvariantBroken, match="maximum"):
        rows.charge(finite, infinite)
    assert not finite.any() and np.array_equal(infinite, before)


# Choice


def kernel_name(**environment: str) -> str:
    code = "from dpolicy.balances.kernel.kernel import KERNEL_NAME; print(KERNEL_NAME)"
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return process.stdout.strip()


def test_the_environment_selects_numpy() -> None:
    assert kernel_name(DPOLICY_KERNEL="numpy") == "numpy"
    assert kernel_name(DPOLICY_KERNEL="") == ("compiled" if COMPILED else "numpy")


def test_another_version_of_the_compiled_kernel_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(numpy_kernel, "KERNEL_VERSION", -1)
    assert load_compiled_kernel() is None


def test_a_compiled_kernel_without_a_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "dpolicy.balances.kernel.compiled_kernel"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert load_compiled_kernel() is None


def test_the_kernels_rank_as_many_rules_as_a_decision_has_reasons() -> None:
    assert numpy_kernel.MAX_TIGHTEST == MAX_REASONS
    assert KERNEL_NAME in ("compiled", "numpy")
