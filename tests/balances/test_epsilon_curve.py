"""The displayed ε of reserves: the same in both kernels, and that of a plain bisection."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.balances.test_kernel import each_kernel
from tests.reference.reserve_epsilon import bisect_epsilon, precise_excess

from dpolicy.balances.kernel.numpy_kernel import EpsilonCurve
from dpolicy.privacy.certificates import QUANTA_PER_UNIT
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.reserves import reserve_limits
from dpolicy.privacy.reserves.ladder import LEAK_RATE
from dpolicy.privacy.reserves.reserve_limits import EPSILON_STEP

LOG_MASSES = st.floats(math.log(1e-14), math.log(0.9))
#: Variances of all sizes, as logarithms.
SIZES = st.floats(0, math.log(INFINITE))


@each_kernel
@settings(max_examples=300, deadline=None)
@given(log_mass=LOG_MASSES, sizes=st.lists(SIZES, min_size=1, max_size=4))
def test_epsilon_is_that_of_a_bisection(kernel: Any, log_mass: float, sizes: list[float]) -> None:
    curve = kernel.EpsilonCurve(log_mass)
    for variance in (int(math.exp(size)) for size in sizes):
        expected = bisect_epsilon(variance, log_mass)
        assert [curve.epsilon(variance) for _ in range(2)] == 2 * [expected]


@each_kernel
@settings(max_examples=200, deadline=None)
@given(log_mass=LOG_MASSES, share=st.floats(0.3, 1.01))
def test_epsilon_is_that_of_a_bisection_near_the_largest_variance(
    kernel: Any, log_mass: float, share: float
) -> None:
    """τ·R is nearly the whole part of δ."""
    largest = math.exp(log_mass) / LEAK_RATE * QUANTA_PER_UNIT
    variance = min(int(share * largest), INFINITE - 1)
    expected = bisect_epsilon(variance, log_mass)
    assert kernel.EpsilonCurve(log_mass).epsilon(variance) == expected


@each_kernel
@settings(max_examples=20, deadline=None)
@given(log_mass=LOG_MASSES, size=st.floats(10, math.log(10 * QUANTA_PER_UNIT)), seed=st.integers(0))
def test_epsilon_is_the_same_in_any_order(
    kernel: Any, log_mass: float, size: float, seed: int
) -> None:
    """A sum that grows by equal costs, and then the same sums in another order."""
    sums = [int(math.exp(size) * (1 + n / 500)) for n in range(100)]
    curve, other = kernel.EpsilonCurve(log_mass), kernel.EpsilonCurve(log_mass)
    ascending = {variance: curve.epsilon(variance) for variance in sums}
    assert list(ascending.values()) == sorted(ascending.values())
    for variance in np.random.default_rng(seed).permutation(list(ascending)).tolist():
        assert other.epsilon(variance) == ascending[variance]


def test_small_errors_of_floats_practically_never_change_a_step() -> None:
    """Other libraries differ in the last bits; 2⁻⁴⁶ of 20 is far above that."""
    random = np.random.default_rng(3)
    pairs = [(int(10 ** random.uniform(9, 14)), random.uniform(-25, -8)) for _ in range(500)]
    for error in (2**-46 * 20, -(2**-46) * 20):
        changed = sum(bisect_epsilon(*pair) != bisect_epsilon(*pair, error) for pair in pairs)
        assert changed == 0
    finer = sum(bisect_epsilon(*pair) != bisect_epsilon(*pair, 1e-9) for pair in pairs)
    assert finer > 50, "an error of the size of a step changes many"


@settings(max_examples=150, deadline=None)
@given(log_mass=LOG_MASSES, size=st.floats(10, math.log(5_000 * QUANTA_PER_UNIT)))
def test_errors_of_the_excess_are_small_against_a_step(log_mass: float, size: float) -> None:
    """The slope decides outside of 2 % of a step (`reserve_epsilon.pxi: UNDECIDED`)."""
    variance = int(math.exp(size))
    step = bisect_epsilon(variance, log_mass) // EPSILON_STEP
    leaked = LEAK_RATE * variance / QUANTA_PER_UNIT
    assume(0 < step <= 2_000 * 10**9 and leaked <= math.exp(log_mass) / 2)
    with mp.workdps(50):
        exact = [precise_excess(variance, number, log_mass) for number in (step - 1, step)]
    for number, value in zip((step - 1, step), exact, strict=True):
        error = abs(value - reserve_limits._excess(variance, number / 10**9, log_mass))
        assert error < (exact[0] - exact[1]) / 200


@each_kernel
@settings(max_examples=100, deadline=None)
@given(
    displayed=st.integers(0, INFINITE), sizes=st.tuples(SIZES, SIZES, SIZES), log_mass=LOG_MASSES
)
def test_epsilon_is_within_the_budget_exactly_up_to_the_limit(
    kernel: Any, displayed: int, sizes: tuple[float, float, float], log_mass: float
) -> None:
    variance, limit, budget = (int(math.exp(size)) for size in sizes)
    curve = kernel.EpsilonCurve(log_mass)
    beside = kernel.BudgetEpsilon(curve, limit, budget)
    lower = beside.lower
    rule = (0.5, 3, displayed, budget, 0, 0, variance, limit)
    assert beside.lower_both(rule) == (lower(displayed, variance), lower(budget, limit))
    for amount in (variance, limit, limit + 1):
        epsilon = curve.epsilon(amount)
        expected = min(epsilon, budget) if amount <= limit else max(epsilon, budget + 1)
        assert lower(displayed, amount) == min(displayed, expected)
        assert (lower(INFINITE + budget + 1, amount) <= budget) == (amount <= limit)


@each_kernel
def test_edges(kernel: Any) -> None:
    curve = kernel.EpsilonCurve(math.log(1e-8))
    assert curve.epsilon(0) == 0
    assert curve.epsilon(INFINITE) == curve.epsilon(INFINITE + 10**12) == INFINITE
    assert curve.epsilon(INFINITE - 1) == INFINITE
    assert kernel.EpsilonCurve(-math.inf).epsilon(1) == INFINITE
    assert kernel.EpsilonCurve(math.log(0.5)).epsilon(1) == 0
    assert curve.epsilon(10**12) % EPSILON_STEP == 0


def test_the_bisection_detects_a_search_that_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary: one step above the smallest ε."""
    real = reserve_limits._search
    monkeypatch.setattr(reserve_limits, "_search", lambda *about: real(*about) + 1)
    reserve_limits.smallest_epsilon.cache_clear()
    curve = EpsilonCurve(math.log(1e-8))
    assert curve.epsilon(10**12) != bisect_epsilon(10**12, math.log(1e-8))
    reserve_limits.smallest_epsilon.cache_clear()
