"""Tuned shares of δ: sound, monotone, reproducible, and better for the mix that they are for."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp
from tests.reference import chains as twin

from dpolicy.privacy.cost import cost
from dpolicy.privacy.loss import Certificates, Loss
from dpolicy.privacy.mechanisms.cost_rules import CostRules
from dpolicy.privacy.mechanisms.declared import DeclaredPure, DeclaredZcdp
from dpolicy.privacy.mechanisms.gaussian import DpSgd, Gaussian
from dpolicy.privacy.mechanisms.laplace import Laplace
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.shares import tuned_shares as tuned
from dpolicy.privacy.shares.anchored_shares import LADDER_CHAIN, anchored_shares
from dpolicy.privacy.shares.chains import RESERVES, DeltaShares, order_limits, reserves_share
from dpolicy.privacy.shares.tuned_shares import (
    CANDIDATE_ORDERS,
    BudgetPoint,
    Mix,
    admitted_mixes,
    mix_costs,
    only_order,
    tuned_chain,
    tuned_shares,
)
from dpolicy.privacy.thresholds import DEFAULT_ORDERS
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

ADD_REMOVE = NeighbouringRelation.ADD_REMOVE
MECHANISMS: tuple[Mechanism, ...] = (
    Gaussian(Fraction(10)),
    Laplace(Fraction(10)),
    DpSgd(Fraction(1), 10_000, sampling_rate=Fraction("0.001")),
    DpSgd(Fraction("1.1"), 1000, sampling_rate=Fraction("0.004267")),
    DpSgd(Fraction("0.7"), 500, sampling_rate=Fraction("0.01")),
)
MIXES = st.lists(
    st.tuples(st.sampled_from(MECHANISMS), st.sampled_from([Fraction(1), Fraction(5)])),
    min_size=1,
    max_size=3,
).map(tuple)
POINTS = st.lists(
    st.tuples(
        st.sampled_from([Fraction(n) for n in ("0.5", "1", "3", "10", "20")]),
        st.sampled_from([Fraction(d) for d in ("1e-5", "1e-7")]),
    ),
    min_size=1,
    max_size=3,
).map(tuple)


@settings(max_examples=25, deadline=None)
@given(MIXES, POINTS, st.fractions("0.2", 25, max_denominator=100))
def test_tuned_shares_are_sound_for_every_budget(
    mix: Mix, points: tuple[BudgetPoint, ...], epsilon: Fraction
) -> None:
    shares = tuned_shares(mix, ADD_REMOVE, points, DEFAULT_ORDERS)
    if shares is None:
        return
    assert sum(share for _, share in shares) == 1
    assert all((20 * share).denominator == 1 for _, share in shares)
    delta = Fraction("1e-6")
    with mp.workdps(60):
        total = mp.mpf(0)
        for order, limit in order_limits(epsilon, delta, shares, Fraction(1)):
            excess, alpha = twin.real(order - 1), twin.real(order)
            kappa = (1 - 1 / alpha) ** excess / alpha
            total += kappa * mp.e ** (excess * (twin.real(limit) - twin.real(epsilon)))
        assert total <= twin.real(delta * (1 - reserves_share(shares)))


@settings(max_examples=15, deadline=None)
@given(MIXES, POINTS)
def test_tuned_thresholds_never_fall(mix: Mix, points: tuple[BudgetPoint, ...]) -> None:
    shares = tuned_shares(mix, ADD_REMOVE, points, DEFAULT_ORDERS)
    if shares is None:
        return
    for delta in (Fraction("1e-7"), Fraction("1e-5")):
        bounds = [
            dict(order_limits(Fraction(n, 7), delta, shares, Fraction(1))) for n in range(1, 150)
        ]
        for small, large in pairwise(bounds):
            assert all(limit <= large[order] for order, limit in small.items())
    few, many = (
        dict(order_limits(Fraction(3), Fraction(delta), shares, Fraction(1)))
        for delta in ("1e-7", "1e-6")
    )
    assert all(limit <= many[order] for order, limit in few.items())


@settings(max_examples=25, deadline=None)
@given(MIXES, POINTS)
def test_no_split_of_the_candidates_admits_more(mix: Mix, points: tuple[BudgetPoint, ...]) -> None:
    """A naive twin: all splits of the three candidates, and the mean of what they admit."""
    shares = tuned_shares(mix, ADD_REMOVE, points, DEFAULT_ORDERS)
    if shares is None:
        return
    costs = mix_costs(mix, ADD_REMOVE)
    limits, best = {}, set()
    for point in set(points):
        counts = {order: admitted_mixes(point, only_order(order), costs) for order in costs.orders}
        most = max(counts.values())
        best |= {max(order for order, count in counts.items() if count == most)} if most else set()
        limits[point] = max(most, admitted_mixes(point, ((RESERVES, Fraction(1)),), costs))
    candidates = [LADDER_CHAIN, tuned_chain(sorted(best), costs.orders), RESERVES]
    spread = shares[-1]

    def score(parts: DeltaShares) -> Fraction:
        values = [admitted_mixes(p, parts, costs) / limit for p, limit in limits.items() if limit]
        return sum(values, Fraction(0)) / len(values)

    chosen = score(shares)
    for first, second in product(range(0, 20, 3), repeat=2):
        parts = (first, second, 19 - first - second)
        if parts[-1] >= 0:
            rival = tuple((c, Fraction(n, 20)) for c, n in zip(candidates, parts, strict=True) if n)
            assert score((*rival, spread)) <= chosen + Fraction(1, 10**5)


@pytest.mark.parametrize("change", (1 - 1e-10, 1 + 1e-10))
def test_small_errors_of_costs_do_not_change_the_choice(
    change: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [
        (((mechanism, Fraction(1)),), ((Fraction(epsilon), Fraction("1e-6")),))
        for mechanism in MECHANISMS
        for epsilon in ("1", "2", "5", "10")
    ]
    exact = [tuned_shares(*case[:1], ADD_REMOVE, case[1], DEFAULT_ORDERS) for case in cases]

    def cost_with_error(
        mechanism: Mechanism,
        k: int,
        relation: NeighbouringRelation,
        certificates: Certificates,
        rules: CostRules,
    ) -> Loss:
        loss = cost(mechanism, k, relation, certificates, rules)
        amounts = tuple(int(amount * change) for amount in loss.amounts)
        return Loss(loss.certificates, amounts, loss.delta)

    monkeypatch.setattr(tuned, "cost", cost_with_error)
    tuned_shares.cache_clear()
    other = [tuned_shares(*case[:1], ADD_REMOVE, case[1], DEFAULT_ORDERS) for case in cases]
    tuned_shares.cache_clear()
    assert other == exact


def test_rows_of_trainings_fit_a_budget_that_is_tuned_for_them() -> None:
    """Budget (1, 10⁻⁵): the trainings need ε 0.009, 0.476 and 0.599 by exact accounting."""
    point = Fraction(1), Fraction("1e-5")
    trainings = (*MECHANISMS[2:4], DpSgd(Fraction(1), 1, sampling_rate=Fraction("0.001")))
    mix = tuple((training, Fraction(1)) for training in trainings)
    shares = tuned_shares(mix, ADD_REMOVE, (point,), DEFAULT_ORDERS)
    assert shares is not None
    untuned = anchored_shares(DEFAULT_ORDERS)
    for training, fits_untuned in zip(trainings, (False, False, True), strict=True):
        costs = mix_costs(((training, Fraction(1)),), ADD_REMOVE)
        assert admitted_mixes(point, shares, costs, Fraction(9, 10)) >= 1
        assert (admitted_mixes(point, untuned, costs, Fraction(9, 10)) >= 1) == fits_untuned


def test_a_mix_that_no_share_admits_has_no_shares() -> None:
    mix = ((DeclaredZcdp(Fraction(10)), Fraction(1)),)
    assert tuned_shares(mix, ADD_REMOVE, ((Fraction("0.001"), Fraction("1e-9")),), ()) is None
    assert tuned_shares(mix, ADD_REMOVE, (), DEFAULT_ORDERS) is None


def test_mixes_without_a_cost_or_with_costs_that_fall_are_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = Fraction(3), Fraction("1e-7")
    nothing = ((DeclaredPure(Fraction(0)), Fraction(1)),)
    assert tuned_shares(nothing, ADD_REMOVE, (point,), DEFAULT_ORDERS) is None

    def falling_cost(
        mechanism: Mechanism,
        k: int,
        relation: NeighbouringRelation,
        certificates: Certificates,
        rules: CostRules,
    ) -> Loss:
        amounts = tuple(10**12 - 10**9 * number for number in range(len(certificates)))
        return Loss(certificates, amounts, Fraction(0))

    monkeypatch.setattr(tuned, "cost", falling_cost)
    costs = mix_costs(((Gaussian(Fraction(3)), Fraction(1)),), ADD_REMOVE)
    assert len(set(costs.orders.values())) == 1
    assert len(tuned_chain(CANDIDATE_ORDERS, costs.orders).handovers) == len(CANDIDATE_ORDERS)


def test_a_policy_without_a_grid_spreads_over_the_ladder() -> None:
    mix = ((Gaussian(Fraction(10)), Fraction(1)),)
    shares = tuned_shares(mix, ADD_REMOVE, ((Fraction(3), Fraction("1e-7")),), ())
    assert shares is not None
    assert {h.order for h in shares[-1][0].handovers} <= set(CANDIDATE_ORDERS)


def test_a_larger_budget_can_tune_an_order_away() -> None:
    """Tuned filters of two policies do not contain each other (docs/theory/filters.md)."""
    mix = ((MECHANISMS[3], Fraction(2)), (Gaussian(Fraction(100)), Fraction(1)))
    delta, limits = Fraction(1, 10**5), {}
    for epsilon in (Fraction("1.8"), Fraction("1.85")):
        shares = tuned_shares(mix, ADD_REMOVE, ((epsilon, delta),), DEFAULT_ORDERS)
        assert shares is not None
        limits[epsilon] = dict(order_limits(epsilon, delta, shares, Fraction(9, 10)))
    smaller, larger = limits.values()
    assert smaller[Fraction(11)] > Fraction("0.968")
    assert Fraction(11) not in larger
