"""The risk of a budget is never below an exact optimal attacker on adaptive histories.

Broken variants of the risk stay here as canaries: the same histories detect each of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist

import mpmath as mp
import pytest
from tests.reference.adaptive_histories import Adversary
from tests.reference.attackers import Leaf, belief_mass, find_underestimates, gaussian_rate

from dpolicy.policy.accounting.accounting_defaults import NEWEST_DEFAULTS
from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Zcdp
from dpolicy.privacy.cost_report import CostReport, report_costs
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.risk.attacker_risk import AttackerRisk, attacker_risk, risk_of_budget
from dpolicy.privacy.risk.tradeoff_curves import exp_up
from dpolicy.privacy.units.group_privacy import GroupContext, no_covers
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit

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
    """Unsound: the bound on the odds fails for outputs of probability δ only."""

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


@pytest.mark.parametrize("multiple", [1, 2, 9, 10, 11, 100])
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


def binary_experiment(true: mp.mpf, false: float) -> list[Leaf]:
    """Return the mechanism that publishes only the decision of a test."""
    t, a = Fraction(str(true * (1 - mp.mpf("1e-40")))), Fraction(repr(false))
    return [Leaf(t, a), Leaf(1 - t, 1 - a)]


@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0])
def test_decisions_of_gaussian_tests_do_not_exceed_the_posterior(mu: float) -> None:
    """The decision of one test is μ-GDP. Its tail of large losses is above that of a Gaussian."""
    risk = risk_of_budget(Gdp(Fraction(mu)), Fraction("1e-3"))
    tail_of_gaussian = AttackerRisk(
        replace(risk.report, mu_squared=None, pure=_gaussian_tail(mu, 1e-3)), risk.delta
    )
    experiments = [
        binary_experiment(gaussian_rate(mu, rate), rate)
        for rate in (10 ** (-exponent / 10) for exponent in range(10, 110))
    ]
    assert not any(find_underestimates(risk, experiment) for experiment in experiments)
    assert any(
        belief_mass(experiment, 0.5, tail_of_gaussian.posterior(0.5)) > 1e-3
        for experiment in experiments
    )


def _gaussian_tail(mu: float, delta: float) -> Fraction:
    """Return the ε that the loss of a Gaussian exceeds with probability δ."""
    return Fraction(mu * mu / 2 - mu * NormalDist().inv_cdf(delta))


UNIT = PrivacyUnit("user", "user", None, NeighbouringRelation.CHANGE)
CONTEXT = GroupContext((UNIT,), False, None, no_covers, NEWEST_DEFAULTS.cost_rules)


def cost_report(kind: str, **parameters: Fraction) -> CostReport:
    """Return the report of a mechanism, as `dpolicy cost` computes it."""
    mechanism, problems = parse_mechanism({"kind": kind, **parameters})
    assert mechanism is not None, problems
    (report,) = report_costs(mechanism, 0, {}, UNIT.relation, CONTEXT, ())
    return report


def compose(reports: list[CostReport]) -> CostReport:
    """Return the sum of every notion."""

    def total(amounts: list[Fraction | None]) -> Fraction | None:
        return None if None in amounts else sum((a for a in amounts if a), Fraction(0))

    curves = [dict(report.renyi) for report in reports]
    return CostReport(
        total([report.pure for report in reports]),
        total([report.rho for report in reports]),
        total([report.mu_squared for report in reports]),
        tuple((order, total([curve[order] for curve in curves])) for order in curves[0]),
        sum((report.delta for report in reports), Fraction(0)),
    )


def fixed_history(rng: random.Random) -> tuple[CostReport, list[Leaf]]:
    """Return Gaussians, randomized responses and stated (ε, δ) that were planned in advance."""
    reports, leaves, mu_squared = [], [Leaf(Fraction(1), Fraction(1))], Fraction(0)
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(("gaussian", "randomized-response", "declared"))
        if kind == "gaussian":
            sigma = _number(rng, 0.8, 20)
            reports.append(cost_report(kind, sigma=sigma))
            mu_squared += 1 / sigma**2
            continue
        truth, leak = _number(rng, 0.51, 0.95), Fraction(0)
        if kind == "declared":
            epsilon, leak = _number(rng, 0.1, 3), Fraction(rng.choice(("0.01", "1e-5")))
            truth = 1 - 1 / (1 + exp_up(epsilon) * (1 - Fraction(1, 10**25)))
            reports.append(cost_report(kind, epsilon=epsilon, delta=leak))
        else:
            reports.append(cost_report(kind, truth=truth))
        leaves = [
            Leaf(leaf.p * x, leaf.q * y)
            for leaf in leaves
            for x, y in (
                ((1 - leak) * truth, (1 - leak) * (1 - truth)),
                ((1 - leak) * (1 - truth), (1 - leak) * truth),
                *(((leak, Fraction(0)), (Fraction(0), leak)) if leak else ()),
            )
        ]
    mu = Fraction(math.isqrt(math.floor(mu_squared * 10**40)), 10**20)
    return compose(reports), [Leaf(leaf.p, leaf.q, mu) for leaf in leaves]


def test_no_attacker_exceeds_the_risk_of_fixed_releases() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        report, leaves = fixed_history(rng)
        risk = attacker_risk(report, Fraction(rng.choice(("1e-7", "0.001"))))
        extra = [rng.uniform(-3, 6), 0.0]
        assert find_underestimates(risk, leaves, extra, rng.choice((0.5, 0.01))) == []


def test_half_of_a_spent_loss_is_detected() -> None:
    rng = random.Random(1)
    wrong = 0
    for _ in range(8):
        report, leaves = fixed_history(rng)
        half = CostReport(
            _half(report.pure),
            _half(report.rho),
            _half(report.mu_squared),
            tuple((order, _half(value)) for order, value in report.renyi),
            report.delta,
        )
        risk = attacker_risk(half)
        wrong += bool(find_underestimates(risk, leaves, [0.0]))
    assert wrong > 5


def _half(amount: Fraction | None) -> Fraction | None:
    return None if amount is None else amount / 2
