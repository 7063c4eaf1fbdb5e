"""Sampled Gaussians in which a unit changes, and their moments at any order (tighter-costs.md)."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import pairwise

import mpmath as mp
import pytest
from tests.reference import tighter_costs as exact
from tests.reference.divergences import real

from dpolicy.privacy.certificates import MU_SQUARED, QUANTA_PER_UNIT, RHO, renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.loss import Certificates, Loss
from dpolicy.privacy.mechanisms.cost_rules import CostRules
from dpolicy.privacy.mechanisms.gaussian import DpSgd, Gaussian
from dpolicy.privacy.mechanisms.sampling import gaussian_mixture
from dpolicy.privacy.mechanisms.sampling.changed_sample import CHAIN_ORDERS, ChangedSample
from dpolicy.privacy.mechanisms.sampling.gaussian_mixture import mixture_moment
from dpolicy.privacy.thresholds import DEFAULT_ORDERS
from dpolicy.privacy.units.group_privacy import GroupContext, cost_by_unit
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, parse_period

AR, CH, RP = NeighbouringRelation
CERTIFICATES: Certificates = (*map(renyi, DEFAULT_ORDERS), RHO, MU_SQUARED)


def random_point(rng: random.Random) -> tuple[float, float, float, bool]:
    order = rng.choice([1.01, 1.25, 1.5, 2.0, 2.5, 3.7, 8.0, 1 + 10 ** rng.uniform(-1, 1.2)])
    return order, 10 ** rng.uniform(-5, -0.1), 10 ** rng.uniform(-1.5, 0.4), rng.random() < 0.6


@pytest.mark.parametrize("seed", range(12))
def test_moments_are_above_many_digits(seed: int) -> None:
    rng = random.Random(seed)
    with mp.workdps(30):
        for _ in range(3):
            point = random_point(rng)
            order, rate, ratio, is_changed = point
            value = exact.mixture_moment(mp.mpf(order), mp.mpf(rate), mp.mpf(ratio), is_changed)
            moment = mixture_moment(order, rate, ratio, is_changed)
            assert value <= moment, point
            if moment < math.inf:
                assert moment <= value * (1 + mp.mpf("1e-9")) + mp.mpf("1e-24"), point
            else:
                assert value > 600 or point[1] > gaussian_mixture.MAX_RATE


def test_a_coarser_rule_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary: without the strip, a step of the same size for every order is too small a bound."""
    monkeypatch.setattr(gaussian_mixture, "_step", lambda ratio, power: 2.4)
    monkeypatch.setattr(gaussian_mixture, "_STRIP_ERROR", 0.0)
    mixture_moment.cache_clear()
    try:  # the mass is at αc = 3.6, between two points of the rule
        moment = mixture_moment(3.6, 0.5, 1.0, False)
    finally:
        mixture_moment.cache_clear()
    value = exact.mixture_moment(mp.mpf("3.6"), mp.mpf("0.5"), mp.mpf(1), False)
    assert moment < value * mp.mpf("0.99")
    monkeypatch.undo()
    assert mixture_moment(3.6, 0.5, 1.0, False) >= value


@pytest.mark.parametrize("seed", range(6))
def test_no_pair_of_data_costs_more_than_opposite_vectors(seed: int) -> None:
    """Any two vectors in the ball, in both directions; the unit may also be absent."""
    rng = random.Random(seed)
    for _ in range(4):
        order, rate, ratio = (
            rng.choice([1.5, 2.0, 4.0]),
            rng.uniform(0.01, 0.6),
            rng.uniform(0.2, 1),
        )
        bound = mixture_moment(order, rate, ratio, True)
        angle, length = rng.uniform(0, 2 * math.pi), rng.choice([0, ratio, rng.uniform(0, ratio)])
        first = (rng.choice([ratio, rng.uniform(0, ratio)]), 0.0)
        second = (length * math.cos(angle), length * math.sin(angle))
        for one, two in ((first, second), (second, first)):
            assert exact.pair_moment(order, rate, one, two) <= bound * (1 + 1e-9) + 1e-12
        worst = exact.pair_moment(order, rate, (ratio, 0.0), (-ratio, 0.0))
        assert worst == pytest.approx(bound, rel=1e-7)


def test_the_bound_for_an_added_unit_is_too_small_for_a_changed_one() -> None:
    """Canary: neither the curve of add-remove, nor four times it, bounds opposite vectors."""
    order, rate, ratio = 4.0, 0.01, 1.0
    added = mixture_moment(order, rate, ratio, False)
    worst = exact.pair_moment(order, rate, (ratio, 0.0), (-ratio, 0.0))
    assert added < worst
    half = mixture_moment(order, rate, ratio / 2, True)
    assert half < exact.pair_moment(order, rate, (ratio, 0.0), (0.0, 0.0))


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("order", [1.5, 2.0, 4.0])
def test_groups_are_above_their_mixture(k: int, order: float) -> None:
    rate, ratio = 0.05, 0.4
    mechanism = ChangedSample(Fraction(2, 5), sampling_rate=Fraction(1, 20))
    (charged,) = cost(mechanism, k, CH, (renyi(order),)).amounts
    worst = exact.pair_moment(order, rate, (ratio, 0.0), (-ratio, 0.0), k) / (order - 1)
    assert worst <= charged / QUANTA_PER_UNIT <= worst * 1.5


def units(relation: NeighbouringRelation) -> tuple[PrivacyUnit, ...]:
    return tuple(
        PrivacyUnit(name, "user", parse_period(name) if name != "user" else None, relation)
        for name in ("day", "week", "month", "user")
    )


def epsilon(loss: Loss, delta: float) -> float:
    """Return ε by the classic conversion."""
    return min(
        amount / QUANTA_PER_UNIT + math.log(1 / delta) / (float(certificate.order) - 1)
        for certificate, amount in zip(loss.certificates, loss, strict=True)
        if amount is not None and certificate.order
    )


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "before", "after"),
    [
        ("1", "0.01", 1000, 5.547, 3.629),
        ("1.1", "0.004267", 3510, 3.383, 2.586),
        ("2", "0.05", 2000, 14.741, 13.234),
    ],
)
def test_training_under_change(
    noise: str, rate: str, steps: int, before: float, after: float
) -> None:
    mechanism = DpSgd(Fraction(noise), steps, sampling_rate=Fraction(rate))
    for relation in (CH, RP):
        user = PrivacyUnit("user", "user", None, relation)
        first, second = (
            cost_by_unit(mechanism, user, AR, GroupContext((user,), rules=rules), CERTIFICATES)
            for rules in CostRules
        )
        assert epsilon(first["user"], 1e-5) == pytest.approx(before, abs=1e-3)
        assert epsilon(second["user"], 1e-5) == pytest.approx(after, abs=1e-3)


@pytest.mark.parametrize("stated", [AR, CH, RP])
@pytest.mark.parametrize("target", [AR, CH, RP])
@pytest.mark.parametrize("additive", [False, True])
def test_units_keep_their_order_and_cost_no_more(
    stated: NeighbouringRelation, target: NeighbouringRelation, additive: bool
) -> None:
    """Pruning needs costs that grow with the unit, under `change` and for additive mechanisms."""
    rng = random.Random(f"{stated}{target}{additive}")
    for _ in range(4):
        mechanism = Gaussian(
            Fraction(rng.uniform(0.5, 8)),
            count=rng.choice([1, 100]),
            sampling_rate=Fraction("0.02"),
        )
        all_units = units(target)
        first, second = (
            cost_by_unit(
                mechanism,
                all_units[0],
                stated,
                GroupContext(all_units[:3], additive, rules=rules),
                CERTIFICATES,
            )
            for rules in CostRules
        )
        for name, loss in second.items():
            assert all(a <= b for a, b in zip(loss.amounts, first[name].amounts, strict=True))
        if target is CH or (target is AR and additive):
            day, month = second["day"], second["month"]
            assert all(a <= b for a, b in zip(day.amounts, month.amounts, strict=True))


def test_a_statement_under_replace_implies_nothing_about_samples() -> None:
    """The sum of a sample without the unit can be far away: nothing bounds that distance."""
    mechanism = Gaussian(Fraction(3), sampling_rate=Fraction(1, 100))
    user = PrivacyUnit("user", "user", None, RP)
    first, second = (
        cost_by_unit(mechanism, user, RP, GroupContext((user,), rules=rules), CERTIFICATES)
        for rules in CostRules
    )
    assert first == second == {"user": cost(Gaussian(Fraction(3)), 1, RP, CERTIFICATES)}


@pytest.mark.parametrize("seed", range(6))
def test_fractional_orders_are_exact(seed: int) -> None:
    """Between the neighbouring integers, above many digits, and below the interpolation."""
    rng = random.Random(seed)
    for _ in range(3):
        order = Fraction(rng.choice(["1.05", "1.5", "2.5", "3.6", "7.25"]))
        rate, noise = (
            Fraction(f"{10 ** rng.uniform(-4, -0.5):.4g}"),
            Fraction(rng.randint(6, 40), 10),
        )
        mechanism = DpSgd(noise, 1000, sampling_rate=rate)
        first, second = (
            cost(mechanism, 1, AR, (renyi(order),), rules).amounts[0] for rules in CostRules
        )
        with mp.workdps(30):
            moment = exact.mixture_moment(real(order), real(rate), 1 / real(noise), False)
            value = min(moment / real(order - 1), real(order) / (2 * real(noise) ** 2)) * 1000
            expected = value * QUANTA_PER_UNIT
            assert expected <= second <= expected * (1 + mp.mpf("1e-9")) + 1
        assert second <= first


@pytest.mark.parametrize("seed", range(4))
def test_a_removed_unit_costs_less_than_an_added_one(seed: int) -> None:
    """The reverse divergence is smaller (statement 3), so one direction is enough."""
    rng = random.Random(seed)
    for _ in range(5):
        order, rate, ratio = rng.uniform(1.01, 6), rng.uniform(0.01, 0.9), rng.uniform(0.1, 1.0)
        added = exact.pair_moment(order, rate, (ratio, 0.0), (0.0, 0.0))
        removed = exact.pair_moment(order, rate, (0.0, 0.0), (ratio, 0.0))
        assert removed <= added * (1 + 1e-9) + 1e-13


def test_interpolation_of_the_divergence_itself_is_no_bound() -> None:
    """Canary: (α−1)·D_α is convex. D_α itself is not: a line through it is below it here."""
    orders, noise, rate = (
        (Fraction(15), Fraction("15.5"), Fraction(16)),
        Fraction(1),
        Fraction("0.01"),
    )
    mechanism = DpSgd(noise, 1, sampling_rate=rate)
    low, middle, high = cost(mechanism, 1, AR, tuple(map(renyi, orders)), CostRules.SECOND).amounts
    assert (low + high) / 2 < middle


def test_orders_of_chains_reach_every_group() -> None:
    mechanism = ChangedSample(Fraction(1, 4), sampling_rate=Fraction(1, 100))
    for order in ("1.25", "2", "8"):
        costs = [cost(mechanism, k, CH, (renyi(order),)).amounts[0] for k in range(1, 40)]
        assert all(a <= b for a, b in pairwise(costs))
    assert list(CHAIN_ORDERS) == sorted(CHAIN_ORDERS)
