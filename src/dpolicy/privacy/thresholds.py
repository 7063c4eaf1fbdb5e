"""A budget → the bound that losses are compared with: thresholds and a δ-side (theory 1.4, 2.4).

An (ε, δ) budget offers several certificates and is kept while one of them holds. That is sound only
if the failure masses of the certificates and of the δ-side together stay within δ (the union of
filters, theory 2.3), so every profile splits δ before anything is spent:

    classic    order α fails with κ(α)·δ, which gives the textbook ε − log(1/δ)/(α−1)
    anchored   half of the mass on the order that serves this budget best, half spread as κ over
               those that classic would offer
    static     every order with the full mass: sound only where costs are not chosen adaptively,
               so for rules that hold for each release by itself

What the split leaves of δ is the δ-side: the most that leaks stated by mechanisms may add up to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp
from dpolicy.privacy.certificates import (
    FLOAT_ERROR,
    MU_SQUARED,
    PURE,
    RHO,
    Certificate,
    inflate,
    quanta_down,
    quanta_up,
    renyi,
)

#: The grid of the paper without the orders whose weights would pass 1 (theory 2.3).
DEFAULT_ORDERS: tuple[Fraction, ...] = tuple(
    Fraction(order) for order in ("2", "2.5", "3", "4", "5", "6", "8", "16", "32", "64")
)

#: Where costs cannot be adaptive a dense grid costs nothing (theory 2.4, `static`).
STATIC_ORDERS: tuple[Fraction, ...] = tuple(
    Fraction(order)
    for order in (
        *("1.25", "1.5", "1.75", "2", "2.25", "2.5", "2.75", "3", "3.5", "4", "4.5", "5", "6"),
        *range(7, 33),
        *(36, 40, 48, 56, 64, 80, 96, 128, 192, 256),
    )
)

#: The part of δ that `anchored` and `static` give to their orders; the rest is the δ-side. It is
#: what `classic` gives on the default grid, so that a change of profile keeps the δ-side.
ORDERS_SHARE = Fraction(13, 14)


class Profile(StrEnum):
    """How an (ε, δ) budget becomes thresholds."""

    CLASSIC = "classic"
    ANCHORED = "anchored"
    STATIC = "static"


#: One certificate with the most its loss may be, in quanta.
Threshold = tuple[Certificate, int]


@dataclass(frozen=True, slots=True)
class BudgetBound:
    """Holds if the δ-side is within `delta` and all thresholds of at least one clause hold.

    `delta` is None where the bound never denies. Thresholds below zero are left out beforehand:
    a clause that no loss can satisfy is not offered.
    """

    clauses: tuple[tuple[Threshold, ...], ...]
    delta: Fraction | None


def bound_for_budget(budget: Budget, profile: Profile, orders: Sequence[Fraction]) -> BudgetBound:
    """What losses are compared with for this budget, rounded down once."""
    match budget:
        case Unlimited():
            return BudgetBound(clauses=((),), delta=None)
        case Zcdp(rho=rho):
            return BudgetBound(clauses=(((RHO, quanta_down(rho)),),), delta=Fraction(0))
        case Gdp(mu=mu):
            return BudgetBound(clauses=(((MU_SQUARED, quanta_down(mu * mu)),),), delta=Fraction(0))
        case Renyi(orders=stated):
            clause = tuple((renyi(order), quanta_down(value)) for order, value in stated)
            return BudgetBound(clauses=(clause,), delta=Fraction(0))
        case EpsilonDelta(epsilon=epsilon, delta=delta):
            weights = _weights(epsilon, delta, profile, tuple(orders)) if delta else ()
            return _epsilon_bound(epsilon, delta, profile, weights)


def _epsilon_bound(
    epsilon: Fraction, delta: Fraction, profile: Profile, weights: Sequence[tuple[Fraction, float]]
) -> BudgetBound:
    spent = _spent_weight(profile, weights)
    thresholds = [(PURE, quanta_down(epsilon))]
    for order, weight in weights:
        room = epsilon - conversion_cost(order, delta, weight)
        if room >= 0:
            thresholds.append((renyi(order), quanta_down(room)))
    return BudgetBound(clauses=tuple((t,) for t in thresholds), delta=delta * (1 - spent))


def _spent_weight(profile: Profile, weights: Sequence[tuple[Fraction, float]]) -> Fraction:
    """The part of δ that the orders may fail with; adaptive profiles add up, `static` does not."""
    if not weights:
        return Fraction(0)
    if profile is Profile.CLASSIC:
        return weight_sum([order for order, _ in weights])
    return ORDERS_SHARE


def conversion_amounts(
    budget: EpsilonDelta, profile: Profile, orders: Sequence[Fraction]
) -> tuple[tuple[Certificate, int], ...]:
    """What each certificate adds when ε is read off it, in quanta, at the budget's own split.

    The least of loss plus conversion is the smallest ε whose thresholds would hold. With `anchored`
    the split depends on ε, so there it is the ε at the split of this budget (theory 8).
    """
    weights = _weights(budget.epsilon, budget.delta, profile, tuple(orders)) if budget.delta else ()
    added = [(order, conversion_cost(order, budget.delta, weight)) for order, weight in weights]
    return ((PURE, 0), *((renyi(o), quanta_up(max(cost, Fraction(0)))) for o, cost in added))


def implies_bound(tighter: BudgetBound, looser: BudgetBound) -> bool:
    """Whether `looser` holds whenever `tighter` does, for every loss (theory 1.5, A.5).

    Each clause that `tighter` may rest on must give all that some clause of `looser` asks.
    """
    if looser.delta is not None and (tighter.delta is None or tighter.delta > looser.delta):
        return False
    return all(
        any(_gives(offered, asked) for asked in looser.clauses) for offered in tighter.clauses
    )


def _gives(offered: tuple[Threshold, ...], required: tuple[Threshold, ...]) -> bool:
    thresholds = dict(offered)
    return all(
        certificate in thresholds and thresholds[certificate] <= most
        for certificate, most in required
    )


def kappa(order: Fraction) -> float:
    """κ(α) = (1/α)(1 − 1/α)^(α−1): what classic thresholds leave unused of δ at this order."""
    alpha = float(order)
    return math.exp((alpha - 1) * math.log1p(-1 / alpha)) / alpha


def weight_sum(orders: Sequence[Fraction]) -> Fraction:
    """S, an upper bound of the sum of κ over a grid; a grid is sound for `classic` if S ≤ 1."""
    return sum((inflate(kappa(order)) for order in orders), Fraction(0))


@lru_cache(maxsize=4096)
def conversion_cost(order: Fraction, delta: Fraction, weight: float) -> Fraction:
    """An upper bound of ε − b(α): what the conversion at this order takes from ε (theory 1.3)."""
    alpha = float(order)
    mass = math.log(alpha) + _log(delta) + math.log(weight)
    terms = math.log1p(-1 / alpha), -mass / (alpha - 1)
    error = FLOAT_ERROR * Fraction(abs(terms[0]) + (abs(mass) + 1) / (alpha - 1))
    return Fraction(terms[0]) + Fraction(terms[1]) + error


def _log(value: Fraction) -> float:
    """log of a fraction that may be smaller than any float."""
    return math.log(value.numerator) - math.log(value.denominator)


def _weights(
    epsilon: Fraction, delta: Fraction, profile: Profile, orders: tuple[Fraction, ...]
) -> tuple[tuple[Fraction, float], ...]:
    """The orders of a profile, each with its part of δ."""
    if profile is Profile.CLASSIC:
        return tuple((order, kappa(order)) for order in orders)
    if profile is Profile.STATIC:
        return tuple((order, float(ORDERS_SHARE)) for order in STATIC_ORDERS)
    half = float(ORDERS_SHARE) / 2
    anchor = anchor_order(epsilon, delta)
    classic = [(order, conversion_cost(order, delta, kappa(order))) for order in orders]
    rest = [order for order, taken in classic if order != anchor and taken <= epsilon]
    total = sum(kappa(order) for order in rest) or 1.0
    spread = tuple((order, half * kappa(order) / total) for order in rest)
    return ((anchor, half if rest else 2 * half), *spread)


@lru_cache(maxsize=4096)
def anchor_order(epsilon: Fraction, delta: Fraction) -> Fraction:
    """α*: the order at which the most ρ fits into (ε, δ), to three decimals."""

    def capacity(log_excess: float) -> float:
        alpha = 1 + math.exp(log_excess)
        cost = math.log1p(-1 / alpha) - (math.log(alpha) + _log(delta)) / (alpha - 1)
        return (float(epsilon) - cost) / alpha

    low, high = math.log(0.02), math.log(1e5)
    for _ in range(200):
        third = (high - low) / 3
        if capacity(low + third) < capacity(high - third):
            low += third
        else:
            high -= third
    return Fraction(round((1 + math.exp((low + high) / 2)) * 1000), 1000)
