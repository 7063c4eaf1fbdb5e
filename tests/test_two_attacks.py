"""The attack on two models exceeds the bound of a budget without that budget, and not with it."""

from __future__ import annotations

import runpy
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from mpmath import betainc

FOLDER = Path(__file__).parent.parent / "examples" / "two-attacks"


@pytest.fixture(scope="module")
def story() -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / "attack.py"))


@pytest.fixture(scope="module")
def noise_without_total(story: dict[str, Any]) -> list[float]:
    return list(story["allowed_noise"](story["PER_RELEASE_POLICY"]))


@pytest.fixture(scope="module")
def noise_with_total(story: dict[str, Any]) -> list[float]:
    return list(story["allowed_noise"](story["POLICY"]))


def total_bound(story: dict[str, Any]) -> float:
    return float(story["permitted_risk"]("cumulative").guess(0.5))


def test_one_model_is_attacked_with_75_percent(
    story: dict[str, Any], noise_without_total: list[float]
) -> None:
    success = story["attack"](noise_without_total[:1]).success
    assert 0.745 < success.low < success.high < 0.755
    assert success.low <= story["permitted_risk"]("each_release").guess(0.5) <= 0.7501


def test_without_a_cumulative_budget_the_attack_exceeds_its_bound(
    story: dict[str, Any], noise_without_total: list[float]
) -> None:
    success = story["attack"](noise_without_total).success
    assert success.low > total_bound(story) + 0.02
    expected = NormalDist().cdf(sum(sigma**-2 for sigma in noise_without_total) ** 0.5 / 2)
    assert success.rate == pytest.approx(expected, abs=0.01)


def test_with_the_budget_the_attack_stays_within_its_bound(
    story: dict[str, Any], noise_with_total: list[float], noise_without_total: list[float]
) -> None:
    success = story["attack"](noise_with_total).success
    assert (
        noise_with_total[0] == noise_without_total[0]
        and noise_with_total[1] > noise_without_total[1]
    )
    assert success.low <= total_bound(story) <= 0.8001
    assert success.low > 0.79  # the attack still works, so the bound is what stops it


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_the_bound_holds_for_other_seeds(
    story: dict[str, Any], noise_with_total: list[float], seed: int
) -> None:
    assert story["attack"](noise_with_total, seed).success.low <= total_bound(story)


def test_canary_too_little_noise_exceeds_the_bound(
    story: dict[str, Any], noise_with_total: list[float]
) -> None:
    assert story["attack"]([0.9 * sigma for sigma in noise_with_total]).success.low > total_bound(
        story
    )


def test_two_agreeing_beliefs_of_75_percent_are_one_of_90_percent(
    story: dict[str, Any], noise_without_total: list[float]
) -> None:
    agreeing = story["attack"](noise_without_total).select_agreeing(0.7, 0.8)
    assert agreeing.belief == pytest.approx(0.9, abs=0.01)
    assert agreeing.success.low < 0.9 < agreeing.success.high
    assert agreeing.success.high - agreeing.success.low < 0.03


@pytest.mark.parametrize(("count", "total"), [(0, 50), (1, 50), (30, 50), (50, 50), (790, 1000)])
def test_the_interval_is_the_one_of_clopper_and_pearson(
    story: dict[str, Any], count: int, total: int
) -> None:
    low, rate, high = story["measure_rate"](np.arange(total) < count)
    assert rate == count / total
    assert low == 0 if count == 0 else _upper_tail(count, total, low) == pytest.approx(0.025)
    assert (
        high == 1 if count == total else _upper_tail(count + 1, total, high) == pytest.approx(0.975)
    )


def _upper_tail(count: int, total: int, rate: float) -> float:
    """Return the probability of at least `count` successes, by the incomplete beta function."""
    return float(betainc(count, total - count + 1, 0, rate, regularized=True))
