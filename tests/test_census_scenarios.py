"""The scenarios of the Census have the sums of the published shares, and sound readings."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from fractions import Fraction
from math import exp, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from dpolicy.pdp.spending.spending import Spending
from dpolicy.privacy.cost_report import CostReport
from dpolicy.privacy.risk.attacker_risk import attacker_risk

FOLDER = Path(__file__).parent.parent / "examples" / "census-2020"
NORMAL = NormalDist()
DELTA = Fraction("1e-10")

#: The scopes again, as conditions on the level and the attributes of a measurement.
CONDITIONS: dict[str, Callable[[str, set[str]], bool]] = {
    "all answers and the residence": lambda level, attributes: True,
    "all answers": lambda level, attributes: bool(attributes),
    "race and Hispanic origin": lambda level, attributes: bool(
        attributes & {"cenrace", "hispanic"}
    ),
    "race": lambda level, attributes: "cenrace" in attributes,
    "Hispanic origin": lambda level, attributes: "hispanic" in attributes,
    "of voting age or not": lambda level, attributes: "votingage" in attributes,
    "household or group quarters": lambda level, attributes: "hhgq" in attributes,
    "block within the block group": lambda level, attributes: level == "block",
}


@pytest.fixture(scope="module")
def spent() -> dict[str, Spending]:
    return dict(runpy.run_path(str(FOLDER / "scenarios.py"))["spending_by_scenario"]())


def exact_rho(fact: str) -> Fraction:
    """Return the sum of the exact shares of the measurements in a scenario."""
    measurements: Any = runpy.run_path(str(FOLDER / "make_release.py"))["measurements"]()
    holds = CONDITIONS[fact]
    return sum(
        (rho for level, _, names, rho in measurements if holds(level, set(names))), Fraction(0)
    )


def test_there_are_eight_scenarios(spent: dict[str, Spending]) -> None:
    assert list(spent) == list(CONDITIONS) and len(spent) == 8


@pytest.mark.parametrize("fact", CONDITIONS)
def test_the_spending_is_the_sum_of_the_published_shares(
    spent: dict[str, Spending], fact: str
) -> None:
    rho = spent[fact].cost.rho
    assert rho is not None
    assert exact_rho(fact) <= rho <= exact_rho(fact) + Fraction(65, 10**12)


def test_the_total_is_the_published_one(spent: dict[str, Spending]) -> None:
    total = spent["all answers and the residence"]
    assert total.rho is not None and total.epsilon is not None
    assert (round(total.rho, 2), round(total.epsilon, 2)) == (2.56, 17.14)


def find_unsound_readings(report: CostReport, rho: float) -> list[str]:
    """Return readings that an attacker of Gaussian noise with this ρ exceeds: μ² = 2ρ."""
    mu, unsound = sqrt(2 * rho), []
    for rate in (0.01, 0.05):
        exact = NORMAL.cdf(NORMAL.inv_cdf(rate) + mu)
        if attacker_risk(report, DELTA).true_positive_rate(rate) < exact:
            unsound.append(f"FPR {rate}")
    for delta in (Fraction("0.01"), DELTA):
        odds = exp(rho + mu * -NORMAL.inv_cdf(float(delta)))
        for prior in (0.01, 0.1, 0.5):
            exact = prior * odds / (1 - prior + prior * odds)
            if attacker_risk(report, delta).posterior(prior) < exact:
                unsound.append(f"prior {prior} at {delta}")
    return unsound


@pytest.mark.parametrize("fact", CONDITIONS)
def test_no_reading_is_below_an_attacker_of_gaussian_noise(
    spent: dict[str, Spending], fact: str
) -> None:
    assert find_unsound_readings(spent[fact].cost, float(exact_rho(fact))) == []


def test_canary_the_readings_of_half_the_loss_are_unsound(spent: dict[str, Spending]) -> None:
    rho = exact_rho("race")
    half = CostReport(None, rho / 2, None, (), Fraction(0))
    assert len(find_unsound_readings(half, float(rho))) == 8
