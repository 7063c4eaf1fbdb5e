"""Thresholds against the oracles: never above the true value, and within 10⁻⁹ of it."""

from __future__ import annotations

import json
from fractions import Fraction
from math import exp, sqrt
from pathlib import Path
from typing import Any

import pytest
from mpmath import mp
from tests.reference import rules as twin

from dpolicy.privacy.budget import EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp
from dpolicy.privacy.certificates import MU_SQUARED, PURE, QUANTA_PER_UNIT, RHO, renyi
from dpolicy.privacy.conversion import gaussian_log_delta
from dpolicy.privacy.thresholds import (
    DEFAULT_ORDERS,
    STATIC_ORDERS,
    BudgetBound,
    Profile,
    bound_for_budget,
    conversion_cost,
    implies_bound,
    kappa,
    weight_sum,
)

ORACLES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data/oracles.json").read_text()
)["cases"]
CLOSE = Fraction(1, 10**9)


def oracles(kind: str) -> list[Any]:
    """Return the cases of one kind, named by their ids."""
    return [pytest.param(case, id=case["id"]) for case in ORACLES if case["kind"] == kind]


def threshold(bound: BudgetBound, order: Fraction) -> Fraction | None:
    """Return the limit of a bound at one order; None if it does not offer the order."""
    offered = dict(clause[0] for clause in bound.clauses)
    quanta = offered.get(renyi(order))
    return None if quanta is None else Fraction(quanta, QUANTA_PER_UNIT)


def exact_threshold(
    epsilon: Fraction, order: Fraction, delta: Fraction, weight: Fraction
) -> Fraction:
    """Return b(α) of theory 2.4 to 45 digits, for a weight that is κ(α) or 1."""
    gain = twin.log_inverse(twin.kappa(order) / weight) / (order - 1)
    return epsilon - twin.log_inverse(delta) / (order - 1) + gain


@pytest.mark.parametrize("case", oracles("filter_budget_classic"))
def test_classic_thresholds_match_the_oracle(case: dict[str, Any]) -> None:
    epsilon, order = Fraction(case["params"]["eps_budget"]), Fraction(case["alpha"])
    delta = Fraction(str(case["delta"]))
    bound = bound_for_budget(EpsilonDelta(epsilon, delta), Profile.CLASSIC, [order])
    limit = threshold(bound, order)
    if case["value"] < 0:
        assert limit is None, "an order that no loss fits is not offered"
    else:
        assert limit is not None
        assert limit <= exact_threshold(epsilon, order, delta, twin.kappa(order))
        assert abs(limit - Fraction(case["value"])) < CLOSE


@pytest.mark.parametrize("case", oracles("filter_budget_improved_single_order"))
def test_thresholds_of_a_single_order_match_the_oracle(case: dict[str, Any]) -> None:
    epsilon, order = Fraction(case["params"]["eps_budget"]), Fraction(case["alpha"])
    delta = Fraction(str(case["delta"]))
    limit = epsilon - conversion_cost(order, delta, 1.0)
    assert limit <= exact_threshold(epsilon, order, delta, Fraction(1))
    assert abs(limit - Fraction(case["value"])) < CLOSE


@pytest.mark.parametrize("case", oracles("kappa_sum"))
def test_the_weight_sum_of_a_grid_matches_the_oracle(case: dict[str, Any]) -> None:
    orders = case["params"]["orders"]
    if orders is None:  # the grid of dp-accounting, which the oracle does not list
        orders = [1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + [128, 256, 512, 1024]
    if len(orders) != case["params"]["n_orders"]:
        pytest.fail(f"the grid has {case['params']['n_orders']} orders, not {len(orders)}")
    total = weight_sum([Fraction(str(order)) for order in orders])
    true = sum((twin.kappa(Fraction(str(order))) for order in orders), Fraction(0))
    assert true <= total, "an upper bound, so that the δ-side is not too large"
    assert abs(total - Fraction(case["value"])) < CLOSE


@pytest.mark.parametrize("case", oracles("counterexample_prune_delta"))
def test_a_gaussian_distinguishes_rules_that_differ_in_delta(case: dict[str, Any]) -> None:
    """P1: the δ of the Gaussian at ε 6 is above the δ of the rule that naive pruning drops."""
    mu = sqrt(2 * case["params"]["gaussian_rho"])
    (small_epsilon, small_delta), (large_epsilon, large_delta) = (
        case["params"]["rule_j"],
        case["params"]["rule_i"],
    )
    assert exp(gaussian_log_delta(mu, small_epsilon)) <= small_delta
    delta = exp(gaussian_log_delta(mu, large_epsilon))
    assert delta > large_delta and abs(delta / case["value"] - 1) < 1e-9


@pytest.mark.parametrize("epsilon", ("0", "0.001", "1", "3.3", "20", "99999"))
@pytest.mark.parametrize("delta", ("1e-30", "1e-9", "0.01"))
def test_every_threshold_is_rounded_down(epsilon: str, delta: str) -> None:
    budget = EpsilonDelta(Fraction(epsilon), Fraction(delta))
    bound = bound_for_budget(budget, Profile.CLASSIC, DEFAULT_ORDERS)
    exactly = twin.classic(budget.epsilon, budget.delta, twin.GRID)
    assert len(bound.clauses) == len(exactly["clauses"])
    for order in DEFAULT_ORDERS:
        limit = threshold(bound, order)
        true = exact_threshold(budget.epsilon, order, budget.delta, twin.kappa(order))
        assert (limit is None) == (true < 0)
        assert limit is None or 0 <= true - limit < CLOSE
    assert bound.delta is not None
    assert 0 <= exactly["delta"] - bound.delta <= budget.delta / 10**12


@pytest.mark.parametrize("profile", (Profile.CLASSIC, Profile.ANCHORED))
@pytest.mark.parametrize("epsilon", ("1", "7"))
def test_failure_masses_stay_within_delta(profile: Profile, epsilon: str) -> None:
    """The union of filters (theory 2.3): masses of the orders offered, plus the δ-side."""
    budget = EpsilonDelta(Fraction(epsilon), Fraction("1e-7"))
    bound = bound_for_budget(budget, profile, DEFAULT_ORDERS)
    assert bound.delta is not None
    mass = bound.delta
    for clause in bound.clauses:
        certificate, quanta = clause[0]
        if certificate != PURE:
            gap = Fraction(quanta, QUANTA_PER_UNIT) - budget.epsilon
            order = certificate.order
            # δ_a = κ(α) e^{(α−1)(b−ε)}, from theory 1.3.
            power = mp.e ** (mp.mpf(gap.numerator) / gap.denominator * float(order - 1))
            mass += Fraction(mp.nstr(power, 40)) * twin.kappa(order)
    assert mass <= budget.delta


def test_native_budgets_become_one_clause() -> None:
    zero = Fraction(0)
    half = Fraction(1, 2)
    assert bound_for_budget(Zcdp(half), Profile.CLASSIC, []) == BudgetBound(
        (((RHO, 5 * 10**11),),), zero
    )
    assert bound_for_budget(Gdp(half), Profile.CLASSIC, []) == BudgetBound(
        (((MU_SQUARED, 25 * 10**10),),), zero
    )
    orders = ((Fraction(2), half), (Fraction(8), Fraction(1)))
    clause = ((renyi(2), 5 * 10**11), (renyi(8), 10**12))
    assert bound_for_budget(Renyi(orders), Profile.CLASSIC, []) == BudgetBound((clause,), zero)
    assert bound_for_budget(Unlimited(), Profile.CLASSIC, []) == BudgetBound(((),), None)
    pure = bound_for_budget(EpsilonDelta(half, zero), Profile.CLASSIC, DEFAULT_ORDERS)
    assert pure == BudgetBound((((PURE, 5 * 10**11),),), zero), "δ 0 is pure DP: no order may fail"


def test_the_default_grid_leaves_a_delta_side() -> None:
    assert 0.92 < weight_sum(DEFAULT_ORDERS) < 0.93
    assert kappa(Fraction(2)) == 0.25


def test_static_offers_every_order_its_full_mass() -> None:
    bound = bound_for_budget(EpsilonDelta(Fraction(20), Fraction("1e-7")), Profile.STATIC, [])
    assert {c.order for ((c, _),) in bound.clauses} <= {*STATIC_ORDERS, Fraction(0)}
    classic = bound_for_budget(
        EpsilonDelta(Fraction(20), Fraction("1e-7")), Profile.CLASSIC, [Fraction(8)]
    )
    limit, base = threshold(bound, Fraction(8)), threshold(classic, Fraction(8))
    assert limit is not None and base is not None and limit > base


def test_an_exact_bound_implies_only_larger_budgets() -> None:
    """Without leaks, the thresholds of (0.3, 1e-5) imply those of (2, 1e-9)."""

    def bound(epsilon: str, delta: str, *, exact: bool = True) -> BudgetBound:
        budget = EpsilonDelta(Fraction(epsilon), Fraction(delta))
        return bound_for_budget(budget, Profile.CLASSIC, DEFAULT_ORDERS, Fraction(0), exact=exact)

    small, large = ("0.3", "1e-5"), ("2", "1e-9")
    assert implies_bound(bound(*small, exact=False), bound(*large, exact=False))
    assert not implies_bound(bound(*small), bound(*large))
    assert not implies_bound(bound(*small), bound(*large, exact=False))
    assert not implies_bound(bound(*small), bound(*small, exact=False))
    assert implies_bound(bound(*small, exact=False), bound(*small))
    assert implies_bound(bound(*small), bound("2", "1e-5"))
    assert implies_bound(bound(*small), bound_for_budget(Unlimited(), Profile.CLASSIC, ()))
    assert bound("1", "0").exact is None, "pure DP needs no loss distribution"
