"""The exact limits of the capacity benchmark: closed formulas, and counts by other methods."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from benchmarks import loss_grids
from benchmarks.loss_grids import (
    LossGrid,
    compose,
    delta,
    discrete_gaussian_grid,
    laplace_grid,
    largest_count,
    pure_grid,
    sampled_gaussian_grid,
)

from dpolicy.privacy.conversion import gaussian_log_delta


def responses_delta(epsilon: float, count: int, target: int) -> float:
    """Return δ of randomized responses, by the binomial distribution in exact fractions."""
    likely = Fraction(math.exp(epsilon)) / (1 + Fraction(math.exp(epsilon)))
    total = 0.0
    for truths in range(count + 1):
        loss = (2 * truths - count) * epsilon
        if loss > target:
            mass = math.comb(count, truths) * likely**truths * (1 - likely) ** (count - truths)
            total -= float(mass) * math.expm1(target - loss)
    return total


@pytest.mark.parametrize(("count", "epsilon"), ((4, 1), (35, 3), (297, 10), (935, 20)))
def test_composed_gaussians_have_the_delta_of_the_closed_formula(count: int, epsilon: int) -> None:
    exact = math.exp(gaussian_log_delta(math.sqrt(count) / 10, epsilon))
    composed = delta(sampled_gaussian_grid(10).repeated(count), epsilon)
    assert exact * (1 - 1e-6) < composed < exact * (1 + 1e-4)


def test_canary_losses_that_are_rounded_up_miss_the_closed_formula() -> None:
    """The split of a loss between two points is needed: rounding up shifts every loss."""
    grid = sampled_gaussian_grid(10)
    masses = np.fft.fftshift(np.fft.irfft(grid.transforms[0], loss_grids.COUNT))
    shifted = np.fft.rfft(np.fft.ifftshift(np.roll(masses, 1)))
    rounded = LossGrid((shifted, shifted), grid.finite)
    exact = math.exp(gaussian_log_delta(math.sqrt(297) / 10, 10))
    assert delta(rounded.repeated(297), 10) > exact * 1.1


def test_randomized_responses_have_the_delta_of_the_binomial_distribution() -> None:
    for count, epsilon in ((40, 3), (94, 5)):
        composed = delta(pure_grid(0.1).repeated(count), epsilon)
        assert composed == pytest.approx(responses_delta(0.1, count, epsilon), rel=1e-6)


@pytest.mark.parametrize(
    ("grid", "epsilon", "count"),
    (
        (discrete_gaussian_grid(10), 3, 35),
        (laplace_grid(10), 5, 96),
        (pure_grid(0.1), 5, 94),
        (sampled_gaussian_grid(1.685, 0.005).repeated(1000), 3, 32),
        (sampled_gaussian_grid(1, 0.01).repeated(100), 3, 16),
    ),
    ids=("discrete Gaussian", "Laplace", "pure", "DP-SGD", "heavy tail"),
)
def test_limits_are_those_of_another_library(grid: LossGrid, epsilon: int, count: int) -> None:
    """The counts are those of dp_accounting's loss distributions at δ = 10⁻⁷."""
    assert largest_count(lambda n: delta(grid.repeated(n), epsilon) <= 1e-7) == count


def test_a_mix_composes_in_any_order() -> None:
    laplace, pure = laplace_grid(10), pure_grid(0.25)
    there, back = compose([(laplace, 7), (pure, 3)]), compose([(pure, 3), (laplace, 7)])
    assert delta(there, 1) == pytest.approx(delta(back, 1), rel=1e-9)
    assert delta(there, 1) > delta(laplace.repeated(7), 1)
