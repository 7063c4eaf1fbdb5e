"""Numbers of the attacker risk agree with naive twins in 50 digits and never fall below them."""

from __future__ import annotations

from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.attackers import as_mp, gaussian_rate, pure_rate, renyi_rate

from dpolicy.errors import InvalidValue
from dpolicy.privacy.budget import EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp
from dpolicy.privacy.cost_report import CostReport
from dpolicy.privacy.risk.attacker_risk import AttackerRisk, attacker_risk, risk_of_budget

RATES = st.one_of(st.floats(1e-12, 0.999), st.sampled_from([0.001, 0.01, 0.1, 0.5, 1e-9, 1 - 1e-7]))
LOSSES = st.one_of(st.floats(1e-6, 20), st.sampled_from([0.1, 0.5, 1.0, 3.0]))


def pure(epsilon: float | str, delta: str = "0") -> AttackerRisk:
    return risk_of_budget(EpsilonDelta(Fraction(epsilon), Fraction(delta)))


def assert_close_above(value: float, exact: mp.mpf, slack: float = 1e-9) -> None:
    """The value is an upper bound, and close to the exact number."""
    assert exact <= as_mp(Fraction(repr(value))) or value == 1.0
    assert value <= float(exact) * (1 + slack) + slack * 1e-3


@given(LOSSES, RATES)
def test_pure_rates(epsilon: float, rate: float) -> None:
    assert_close_above(pure(epsilon).true_positive_rate(rate), pure_rate(epsilon, rate))


@settings(max_examples=50, deadline=None)
@given(LOSSES, RATES)
def test_gaussian_rates(mu: float, rate: float) -> None:
    risk = risk_of_budget(Gdp(Fraction(mu)))
    assert_close_above(risk.true_positive_rate(rate), gaussian_rate(mu, rate), 1e-8)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from([1.01, 1.25, 2.0, 8.0, 64.0, 1024.0]), LOSSES, RATES)
def test_renyi_rates(order: float, divergence: float, rate: float) -> None:
    risk = risk_of_budget(Renyi(((Fraction(order), Fraction(divergence)),)))
    exact = renyi_rate(order, divergence, rate)
    assert_close_above(risk.true_positive_rate(rate), exact, 1e-5)


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-4, 4), RATES)
def test_zcdp_is_above_the_gaussian_and_below_each_order(rho: float, rate: float) -> None:
    value = risk_of_budget(Zcdp(Fraction(rho))).true_positive_rate(rate)
    assert as_mp(value) >= gaussian_rate(float(mp.sqrt(2 * as_mp(rho))) * (1 - 1e-15), rate)
    for order in (1.01, 2.0, 5.0, 50.0):
        assert value <= float(renyi_rate(order, rho * order, rate)) * 1.02


def test_numbers_of_epsilon_3() -> None:
    risk = pure("3")
    assert risk.as_json() == {
        "posterior": {
            "0.5": 0.9525741268224333,
            "0.1": 0.6905678577030157,
            "0.01": 0.16866478870682008,
        },
        "posterior-failure": 0.0,
        "tpr": {
            "0.1": 0.9551916384689225,
            "0.01": 0.2008553692318767,
            "0.001": 0.02008553692318767,
        },
        "advantage": 0.9051482536448665,
    }


def test_a_leak_adds_its_probability() -> None:
    risk = pure("0", "0.25")
    assert risk.true_positive_rate(0.0) == 0.25
    assert risk.true_positive_rate(0.5) == 0.75
    assert risk.advantage == 0.25
    assert risk.guess(0.5) == 0.625


@pytest.mark.parametrize("rate", [0.0, 0.01, 1.0])
def test_an_unlimited_budget_bounds_nothing(rate: float) -> None:
    risk = risk_of_budget(Unlimited())
    assert not risk.is_bounded
    assert risk.true_positive_rate(rate) == 1.0
    assert (risk.posterior(0.5), risk.advantage, risk.guess(0.5)) == (1.0, 1.0, 1.0)


@given(
    st.sampled_from(["pure", "rho", "mu_squared", "renyi"]),
    st.sampled_from(["1e-30", "1e-9", "0.5", "800", "20000", "1e7", "1e40"]),
    st.sampled_from(["0", "1e-310", "1e-9", "0.5", "0.9999999999999"]),
    st.sampled_from(["0", "1e-310", "1e-7", "0.99999999999999999999"]),
    st.sampled_from([0.0, 5e-324, 1e-300, 0.01, 1 - 2**-53, 1.0]),
)
def test_extreme_losses_have_probabilities(
    notion: str, amount: str, leak: str, delta: str, rate: float
) -> None:
    value = Fraction(amount)
    report = CostReport(
        value if notion == "pure" else Fraction(30),
        value if notion == "rho" else None,
        value if notion == "mu_squared" else None,
        tuple((Fraction(order), value) for order in (2, 100_000) if notion == "renyi"),
        Fraction(leak),
    )
    risk = attacker_risk(report, Fraction(delta))
    results = (
        *(risk.true_positive_rate(rate), risk.posterior(rate), risk.guess(rate)),
        *(risk.advantage, risk.reconstruction(rate), risk.posterior_failure),
    )
    assert all(0 <= result <= 1 for result in results)
    assert risk.true_positive_rate(rate) >= rate
    assert risk.posterior(rate) >= rate
    assert risk.as_json()["advantage"] == risk.advantage


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_number_that_is_no_probability_is_refused(value: float) -> None:
    for call in (pure("1").true_positive_rate, pure("1").posterior, pure("1").guess):
        with pytest.raises(InvalidValue, match="M006"):
            call(value)
    with pytest.raises(InvalidValue, match="baseline"):
        pure("1").reconstruction(value)
