"""The risk of a budget is never below an exact optimal attacker on adaptive histories.

Broken variants of the risk stay here as canaries: the same histories detect each of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
from tests.reference.adaptive_histories import Adversary
from tests.reference.attackers import Leaf, find_underestimates

from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Zcdp
from dpolicy.privacy.risk.attacker_risk import AttackerRisk, risk_of_budget
from dpolicy.privacy.risk.tradeoff_curves import exp_up

#: Histories of each kind of budget: 1,100 together.
HISTORIES = 220


def _number(rng: random.Random, low: float, high: float) -> Fraction:
    return Fraction(round(rng.uniform(low, high), 3)).limit_denominator(1000)


def pure(rng: random.Random) -> Budget:
    return EpsilonDelta(_number(rng, 0.1, 6), Fraction(0))


def approximate(rng: random.Random) -> Budget:
    return EpsilonDelta(_number(rng, 0.5, 6), Fraction(rng.choice(("0.05", "0.001", "1e-6"))))


def zcdp(rng: random.Random) -> Budget:
    return Zcdp(_number(rng, 0.01, 3))


def gaussian(rng: random.Random) -> Budget:
    return Gdp(_number(rng, 0.1, 4))


def renyi(rng: random.Random) -> Budget:
    orders = sorted(rng.sample((1.25, 2, 3, 8, 32), rng.choice((1, 2))))
    return Renyi(tuple((Fraction(order), _number(rng, 0.1, 4)) for order in orders))


BUDGETS: list[Callable[[random.Random], Budget]] = [pure, approximate, zcdp, gaussian, renyi]


def underestimates(
    draw: Callable[[random.Random], Budget], risk_of: Callable[[Budget], AttackerRisk]
) -> list[str]:
    """Return what optimal attackers exceed in `HISTORIES` random histories."""
    wrong: list[str] = []
    for seed in range(HISTORIES):
        rng = random.Random(seed)
        budget = draw(rng)
        leaves = Adversary(budget, rng).play()
        extra = [rng.uniform(-3, 6), 0.0]
        wrong += find_underestimates(risk_of(budget), leaves, extra, rng.choice((0.5, 0.1)))
    return wrong


@pytest.mark.parametrize("draw", BUDGETS)
def test_no_attacker_exceeds_the_risk_of_the_budget(
    draw: Callable[[random.Random], Budget],
) -> None:
    assert underestimates(draw, risk_of_budget) == []


@dataclass(frozen=True)
class FailureOfDelta(AttackerRisk):
    """Unsound: ε at δ bounds the odds of all outputs but a share of δ."""

    @property
    def posterior_failure(self) -> float:
        return float(self.delta)


def test_the_gaussian_curve_of_zcdp_is_detected() -> None:
    """ρ-zCDP is no μ-GDP with μ² = 2ρ: randomized response of the same ρ is worse."""

    def as_gaussian(budget: Budget) -> AttackerRisk:
        report = risk_of_budget(budget).report
        assert report.rho is not None
        return AttackerRisk(replace(report, rho=None, mu_squared=2 * report.rho), Fraction("1e-7"))

    wrong = underestimates(zcdp, as_gaussian)
    for number in ("tpr", "advantage", "guess"):
        assert any(text.startswith(number) for text in wrong)


def test_a_renyi_curve_that_is_too_low_by_a_thousandth_is_detected() -> None:
    def too_low(budget: Budget) -> AttackerRisk:
        report = risk_of_budget(budget).report
        orders = [(order, value and value * Fraction(999, 1000)) for order, value in report.renyi]
        return AttackerRisk(replace(report, renyi=tuple(orders)), Fraction("1e-7"))

    assert any(text.startswith("tpr") for text in underestimates(renyi, too_low))


def test_a_forgotten_leak_is_detected() -> None:
    def without_leak(budget: Budget) -> AttackerRisk:
        risk = risk_of_budget(budget)
        return replace(risk, report=replace(risk.report, delta=Fraction(0)))

    wrong = underestimates(approximate, without_leak)
    for number in ("tpr", "advantage", "guess"):
        assert any(text.startswith(number) for text in wrong)


def worst_case(epsilon: Fraction, delta: Fraction, mass: Fraction) -> list[Leaf]:
    """Return an (ε, δ)-DP mechanism with an outcome of this mass and a loss above ε."""
    rare = (mass - delta) / exp_up(epsilon)
    return [Leaf(mass, rare), Leaf(1 - mass, 1 - rare)]


@pytest.mark.parametrize("multiple", [1, 2, 9, 11, 100])
def test_posteriors_of_worst_cases_hold(multiple: int) -> None:
    epsilon, delta = Fraction(2), Fraction("1e-4")
    experiment = worst_case(epsilon, delta, multiple * delta)
    assert find_underestimates(risk_of_budget(EpsilonDelta(epsilon, delta)), experiment) == []


def test_a_posterior_that_fails_more_often_than_stated_is_detected() -> None:
    epsilon, delta = Fraction(2), Fraction("1e-4")
    risk = risk_of_budget(EpsilonDelta(epsilon, delta))
    experiment = worst_case(epsilon, delta, 9 * delta)
    wrong = find_underestimates(FailureOfDelta(risk.report, risk.delta), experiment)
    assert any(text.startswith("posterior") for text in wrong)
