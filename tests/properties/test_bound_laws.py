"""Order of bounds: `implies_bound` is a sound and complete preorder, covered by `bound_chains`."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp
from dpolicy.privacy.certificates import MU_SQUARED, PURE, RHO, Certificate, renyi
from dpolicy.privacy.shares.anchored_shares import anchored_shares
from dpolicy.privacy.shares.chains import DeltaShares
from dpolicy.privacy.thresholds import (
    DEFAULT_ORDERS,
    BudgetBound,
    Profile,
    bound_for_budget,
    implies_bound,
)
from dpolicy.rules.pruning import bound_chains

EPSILONS = st.sampled_from(("0", "0.5", "1", "3", "5", "6", "10", "20"))
DELTAS = st.sampled_from(("0", "1e-12", "1e-9", "1e-7", "1e-5"))
AMOUNTS = st.sampled_from(("0", "0.1", "0.5", "1", "2.5"))
ORDERS = st.sampled_from(("2", "8", "16", "64"))


def fraction(text: str) -> Fraction:
    """Return a decimal exactly."""
    return Fraction(text)


BUDGETS: st.SearchStrategy[Budget] = st.one_of(
    st.builds(EpsilonDelta, EPSILONS.map(fraction), DELTAS.map(fraction)),
    st.builds(EpsilonDelta, EPSILONS.map(fraction), DELTAS.map(fraction)),
    st.builds(Zcdp, AMOUNTS.map(fraction)),
    st.builds(Gdp, AMOUNTS.map(fraction)),
    st.dictionaries(ORDERS.map(fraction), AMOUNTS.map(fraction), min_size=1, max_size=3).map(
        lambda orders: Renyi(tuple(sorted(orders.items())))
    ),
    st.just(Unlimited()),
)
GRIDS = st.sampled_from((DEFAULT_ORDERS, (Fraction(2), Fraction(8)), (Fraction(16), Fraction(64))))
SHARES = GRIDS.map(anchored_shares)
BOUNDS = st.one_of(
    st.builds(bound_for_budget, BUDGETS, st.sampled_from(Profile), GRIDS),
    st.builds(
        bound_for_budget, BUDGETS, st.just(Profile.ANCHORED), GRIDS, st.none(), shares=SHARES
    ),
)
#: A loss: quanta per certificate (absent if infinite), and the δ-side.
Loss = tuple[dict[Certificate, int], Fraction]


def holds(bound: BudgetBound, loss: Loss) -> bool:
    """Return whether a bound holds: the sentence of theory 1.4, literally."""
    amounts, delta = loss
    if bound.delta is not None and delta > bound.delta:
        return False
    return any(all(c in amounts and amounts[c] <= limit for c, limit in k) for k in bound.clauses)


def random_loss(random: Random, *bounds: BudgetBound) -> Loss:
    """Return a loss at or near the thresholds of the bounds, infinite in many certificates."""
    amounts: dict[Certificate, int] = {}
    for certificate in (PURE, RHO, MU_SQUARED, *map(renyi, DEFAULT_ORDERS)):
        if random.random() < 0.3:
            amounts[certificate] = random.choice((0, 10**11, 10**12, 10**13))
    for bound in bounds:
        for certificate, limit in random.choice(bound.clauses):
            if random.random() < 0.8:
                amounts[certificate] = max(0, limit + random.choice((-1, 0, 0, 1)))
    sides = [bound.delta for bound in bounds if bound.delta is not None]
    return amounts, random.choice([Fraction(0), *sides, *(2 * side for side in sides)])


def corners(bound: BudgetBound) -> list[Loss]:
    """Return the largest loss of each clause: infinite in all other certificates."""
    side = Fraction(1) if bound.delta is None else bound.delta
    return [(dict(clause), side) for clause in bound.clauses]


@settings(deadline=None)
@given(BOUNDS)
def test_a_bound_implies_itself(bound: BudgetBound) -> None:
    assert implies_bound(bound, bound)


@settings(max_examples=500, deadline=None)
@given(BOUNDS, BOUNDS, BOUNDS)
def test_implication_is_transitive(a: BudgetBound, b: BudgetBound, c: BudgetBound) -> None:
    assert not (implies_bound(a, b) and implies_bound(b, c)) or implies_bound(a, c)


@settings(max_examples=300, deadline=None)
@given(st.lists(BOUNDS, min_size=2, max_size=4), st.integers(0, 10**6))
def test_a_loss_within_the_tighter_is_within_the_looser(
    bounds: list[BudgetBound], seed: int
) -> None:
    random = Random(seed)
    for tighter in bounds:
        for looser in (b for b in bounds if implies_bound(tighter, b)):
            for _ in range(5):
                loss = random_loss(random, tighter, looser)
                assert not holds(tighter, loss) or holds(looser, loss), loss


@settings(max_examples=500, deadline=None)
@given(BOUNDS, BOUNDS)
def test_a_rejected_implication_has_a_counterexample(a: BudgetBound, b: BudgetBound) -> None:
    assert implies_bound(a, b) == all(holds(b, corner) for corner in corners(a))


@settings(max_examples=300, deadline=None)
@given(st.lists(BOUNDS, max_size=12, unique=True))
def test_chains_cover_all_bounds_and_each_is_ordered(bounds: list[BudgetBound]) -> None:
    chains = bound_chains(bounds)
    assert sorted(number for chain in chains for number in chain) == list(range(len(bounds)))
    for chain in chains:
        assert all(implies_bound(bounds[a], bounds[b]) for a, b in pairwise(chain))
        assert all(
            implies_bound(bounds[a], bounds[b]) for i, a in enumerate(chain) for b in chain[i:]
        )


@pytest.mark.parametrize(
    ("profile", "shares"),
    (
        (Profile.CLASSIC, None),
        (Profile.GAUSSIAN, None),
        (Profile.ANCHORED, anchored_shares(DEFAULT_ORDERS)),
    ),
)
def test_budgets_of_one_delta_are_one_chain(profile: Profile, shares: DeltaShares | None) -> None:
    delta = Fraction(1, 10**7)
    budgets = [EpsilonDelta(Fraction(n, 4), delta) for n in range(1, 80)]
    bounds = [
        bound_for_budget(budget, profile, DEFAULT_ORDERS, None, shares)
        for budget in reversed(budgets)
    ]
    assert len(bound_chains(bounds)) == 1, "thresholds are monotone in ε: pruning needs one pass"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.fractions(0, 30, max_denominator=1000), min_size=2, max_size=2),
    st.lists(DELTAS, min_size=2, max_size=2),
)
def test_a_larger_budget_implies_a_larger_bound(
    epsilons: list[Fraction], deltas: list[str]
) -> None:
    """`gaussian` has fixed weights, and the variance that reserves admit grows with ε and δ."""
    smaller, larger = (
        bound_for_budget(EpsilonDelta(choose(epsilons), choose(map(Fraction, deltas))), *FIXED)
        for choose in (min, max)
    )
    assert implies_bound(smaller, larger)


FIXED = (Profile.GAUSSIAN, DEFAULT_ORDERS)
