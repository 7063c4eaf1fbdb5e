"""Randomized response of groups by composition, against all vectors of answers."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import mpmath as mp
import pytest
from tests.reference import reserve_divergences as exact
from tests.reference.divergences import real
from tests.reference.tighter_costs import answers_moment

from dpolicy.privacy.certificates import MU_SQUARED, PURE, QUANTA_PER_UNIT, RHO, renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.loss import Certificates, amount_in
from dpolicy.privacy.mechanisms.cost_rules import CostRules
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.mechanisms.randomized_response import KaryResponse, RandomizedResponse
from dpolicy.privacy.reserves.ladder import LADDER, RESERVES
from dpolicy.privacy.units.group_privacy import GroupContext, cost_by_unit
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, parse_period

CH = NeighbouringRelation.CHANGE
CERTIFICATES: Certificates = (PURE, RHO, MU_SQUARED, *map(renyi, ("1.5", "2", "8", "64")))

#: Randomized response with ε = 0.1, rounded down to a fraction.
WEAK = RandomizedResponse(Fraction(math.exp(0.1) / (1 + math.exp(0.1))))


@pytest.mark.parametrize("seed", range(10))
def test_groups_are_above_all_vectors_of_answers(seed: int) -> None:
    """Each of k units keeps or changes its answer; the largest loss has k changes."""
    rng = random.Random(seed)
    k, values = rng.randint(1, 4), rng.choice([2, 2, 3])
    order = Fraction(rng.choice(["1.25", "2", "5.5"]))
    if values == 2:
        truth = Fraction(rng.randint(51, 95), 100)
        mechanism: Mechanism = RandomizedResponse(truth)
        lie = 1 - real(truth)
    else:
        noise = Fraction(rng.randint(10, 90), 100)
        mechanism, lie = KaryResponse(values, noise), real(noise / values)
    (charged,) = cost(mechanism, k, CH, (renyi(order),), CostRules.SECOND).amounts
    for changes in range(k + 1):
        pairs = [(0, 1)] * changes + [(0, 0)] * (k - changes)
        loss = answers_moment(lie, values, real(order), pairs) / real(order - 1)
        assert loss * QUANTA_PER_UNIT <= charged
    assert charged <= loss * QUANTA_PER_UNIT * (1 + mp.mpf("1e-9")) + 1


def test_the_cost_of_one_answer_is_no_bound_for_two() -> None:
    """Canary: a group of two that is charged as one unit."""
    (one,) = cost(WEAK, 1, CH, (renyi(2),), CostRules.SECOND).amounts
    lie = 1 - real(WEAK.truth)
    assert answers_moment(lie, 2, mp.mpf(2), [(0, 1)] * 2) * QUANTA_PER_UNIT > one


@pytest.mark.parametrize("k", [1, 2, 7, 31, 366])
@pytest.mark.parametrize(
    "m", [WEAK, RandomizedResponse(Fraction(9, 10)), KaryResponse(5, Fraction(1, 2))]
)
def test_composition_is_never_above_group_privacy(m: Mechanism, k: int) -> None:
    first, second = (cost(m, k, CH, CERTIFICATES, rules).amounts for rules in CostRules)
    assert all(b <= a for a, b in zip(first, second, strict=True))


def test_days_of_a_user_cost_as_the_page_states() -> None:
    day = PrivacyUnit("day", "user", parse_period("day"), CH)
    week = PrivacyUnit("week", "user", parse_period("week"), CH)
    month = PrivacyUnit("month", "user", parse_period("month"), CH)
    units = (day, week, month)
    first, second = (
        cost_by_unit(WEAK, day, CH, GroupContext(units, rules=rules), (RHO,)) for rules in CostRules
    )
    amounts = [
        costs[name].amounts[0] / QUANTA_PER_UNIT for costs in (first, second) for name in costs
    ]
    assert amounts == pytest.approx([0.005, 0.2355, 2.8327, 0.005, 0.03497, 0.15487], abs=1e-4)


@pytest.mark.parametrize("k", (7, 31))
def test_answers_beside_reserves_cost_the_sum_of_their_costs(k: int) -> None:
    """The costs are above the definition for k answers together, and below that of ε·k."""
    losses = [cost(WEAK, n, CH, (PURE, *LADDER), CostRules.SECOND) for n in (1, k)]
    truth = real(WEAK.truth)
    epsilon = mp.log(truth / (1 - truth))
    atoms = [
        (mp.binomial(k, n) * truth**n * (1 - truth) ** (k - n), (2 * n - k) * epsilon)
        for n in range(k + 1)
    ]
    for certificate in RESERVES:
        single, group = (amount_in(loss, certificate) for loss in losses)
        assert single is not None and group is not None
        assert group <= k * single
        size, c = real(certificate.order), real(Fraction(group, QUANTA_PER_UNIT))
        points = [mp.sqrt(size + c) * mp.mpf(text) for text in ("-3", "0", "0.7", "2", "4", "7")]
        assert all(exact.excess(atoms, size, x, c) <= 0 for x in points)
    largest = losses[1].amounts[-1]
    assert largest < k * QUANTA_PER_UNIT / 98  # ε² = 1/100 for each answer
