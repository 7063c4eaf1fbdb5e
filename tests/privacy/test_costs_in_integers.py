"""Costs in integers, kept by group size, equal the plain computation in fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import rounding

from dpolicy.privacy import cost as cost_module
from dpolicy.privacy.certificates import MU_SQUARED, PURE, RHO, Certificate, renyi
from dpolicy.privacy.cost import cost, cost_by_size
from dpolicy.privacy.loss import Certificates, unbounded_loss
from dpolicy.privacy.mechanisms.cost_rules import CostRules
from dpolicy.privacy.mechanisms.declared import (
    DeclaredCurve,
    DeclaredGdp,
    DeclaredPure,
    DeclaredZcdp,
)
from dpolicy.privacy.mechanisms.divergence_bounds import round_to_loss, rounding_plan
from dpolicy.privacy.mechanisms.gaussian import (
    DiscreteGaussian,
    Gaussian,
    Pate,
    TreeAggregation,
)
from dpolicy.privacy.mechanisms.laplace import DiscreteLaplace, Laplace
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.thresholds import DEFAULT_ORDERS
from dpolicy.privacy.units.group_privacy import GroupContext, cost_by_unit, steps_from
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, parse_period

CERTIFICATES: Certificates = (
    PURE,
    *(renyi(order) for order in (*DEFAULT_ORDERS, Fraction(101, 100))),
    RHO,
    MU_SQUARED,
)
UNITS = (
    PrivacyUnit("user", "user", None),
    PrivacyUnit("user-month", "user", parse_period("month"), NeighbouringRelation.CHANGE),
    PrivacyUnit("user-day", "user", parse_period("day")),
    PrivacyUnit("device", "device", None),
)
SIZES = st.one_of(st.none(), st.sampled_from([1, 2, 3, 31]))
RELATIONS = st.sampled_from(list(NeighbouringRelation))

#: Decimals from 10⁻⁹ to 10⁹, and fractions without a finite decimal.
AMOUNTS = st.one_of(
    st.builds(lambda n, e: n * Fraction(10) ** e, st.integers(1, 999), st.integers(-9, 6)),
    st.fractions(Fraction(1, 1000), 1000, max_denominator=10**6),
)
DELTAS = st.one_of(st.just(Fraction(0)), st.fractions(0, Fraction(1, 2), max_denominator=10**9))
COUNTS = st.sampled_from([1, 2, 10, 10**6])
CURVES = st.just(((Fraction(2), Fraction(1, 2)), (Fraction(8), Fraction(1))))
MECHANISMS: st.SearchStrategy[Mechanism] = st.one_of(
    st.builds(Gaussian, AMOUNTS, AMOUNTS, count=COUNTS),
    st.builds(DiscreteGaussian, AMOUNTS, AMOUNTS, count=COUNTS),
    st.builds(TreeAggregation, AMOUNTS, st.integers(1, 100), st.integers(1, 3), count=COUNTS),
    st.builds(Pate, AMOUNTS, st.integers(1, 100), count=COUNTS),
    st.builds(Laplace, AMOUNTS, AMOUNTS, count=COUNTS),
    st.builds(DiscreteLaplace, AMOUNTS, AMOUNTS, count=COUNTS),
    st.builds(DeclaredPure, AMOUNTS, DELTAS, count=COUNTS),
    st.builds(DeclaredZcdp, AMOUNTS, st.one_of(st.just(Fraction(0)), AMOUNTS), count=COUNTS),
    st.builds(DeclaredGdp, AMOUNTS, count=COUNTS),
    st.builds(DeclaredCurve, CURVES, count=COUNTS),
    st.builds(Gaussian, AMOUNTS, count=COUNTS, sampling_rate=st.just(Fraction(1, 100))),
)


@given(MECHANISMS, st.lists(SIZES, min_size=1, max_size=4), RELATIONS)
def test_costs_equal_those_in_fractions(
    mechanism: Mechanism, sizes: list[int | None], relation: NeighbouringRelation
) -> None:
    expected = [
        unbounded_loss(CERTIFICATES)
        if k is None
        else rounding.cost(mechanism, k, relation, CERTIFICATES)
        for k in sizes
    ]
    assert cost_by_size(mechanism, sizes, relation, CERTIFICATES) == expected
    assert cost_by_size(mechanism, sizes, relation, CERTIFICATES) == expected  # the kept losses


@given(MECHANISMS, RELATIONS)
def test_costs_by_unit_equal_those_in_fractions(
    mechanism: Mechanism, relation: NeighbouringRelation
) -> None:
    context = GroupContext(UNITS)
    losses = cost_by_unit(mechanism, UNITS[0], relation, context, CERTIFICATES)
    plain = [
        unbounded_loss(CERTIFICATES)
        if k is None
        else rounding.cost(mechanism, k, relation, CERTIFICATES)
        for k in steps_from(context, 0, relation)
    ]
    if len({loss.delta for loss in plain}) == 1:
        assert list(losses.values()) == plain


def test_kept_losses_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_module, "MAX_SIZES", 2)
    mechanism, relation = Gaussian(Fraction(7, 3)), NeighbouringRelation.ADD_REMOVE
    for k in (1, 2, 3, 4, 1, 2):
        expected = rounding.cost(mechanism, k, relation, CERTIFICATES)
        assert cost(mechanism, k, relation, CERTIFICATES) == expected
    plan = rounding_plan(CERTIFICATES)
    assert len(cost_module._losses_by_size(mechanism, relation, plan, CostRules.FIRST)) <= 2


@pytest.mark.parametrize("order", [2, Fraction(2), "2"])
def test_equal_certificates_have_equal_hashes(order: Any) -> None:
    assert renyi(order) == Certificate(renyi(2).notion, Fraction(4, 2))
    assert hash(renyi(order)) == hash(Certificate(renyi(2).notion, Fraction(4, 2)))


def test_a_loss_rounded_down_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary: the comparison above fails if one amount is a quantum too small."""
    mechanism, relation = Gaussian(Fraction(71, 7)), NeighbouringRelation.ADD_REMOVE

    def careless(bounds: Any, count: int, plan: Any) -> Any:
        loss = round_to_loss(bounds, count, plan)
        return type(loss)(loss.certificates, tuple(a - 1 for a in loss.amounts), loss.delta)

    monkeypatch.setattr(cost_module, "round_to_loss", careless)
    (loss,) = cost_by_size(mechanism, [5], relation, CERTIFICATES)
    assert loss != rounding.cost(mechanism, 5, relation, CERTIFICATES)
    cost_module._losses_by_size.cache_clear()
