"""Budget bounds: the thresholds and the δ-side that losses are compared with (theory 1.4, 2.4).

An (ε, δ) budget offers several certificates and is satisfied while one of them holds. That is sound
only if the failure probabilities of the certificates and the δ-side together stay within δ (the
union of filters, theory 2.3). Every profile therefore splits δ before any loss is charged:

    classic    order α fails with κ(α)·δ, which gives the textbook ε − log(1/δ)/(α−1)
    anchored   the order with the largest capacity gets half of the mass; the orders that classic
               would offer share the other half in proportion to κ
    static     every order has the full mass: sound only if costs are not chosen adaptively, that
               is, for per-release rules

The remaining part of δ is the δ-side of the bound: the limit for the sum of the declared δ.
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
from dpolicy.privacy.conversion import log_fraction

#: The grid of the paper, without the orders that would make the weights exceed 1 (theory 2.3).
DEFAULT_ORDERS: tuple[Fraction, ...] = tuple(
    Fraction(order) for order in ("2", "2.5", "3", "4", "5", "6", "8", "16", "32", "64")
)

#: A dense grid: if costs are not chosen adaptively, more orders need no more δ (theory 2.4).
STATIC_ORDERS: tuple[Fraction, ...] = tuple(
    Fraction(order)
    for order in (
        *("1.25", "1.5", "1.75", "2", "2.25", "2.5", "2.75", "3", "3.5", "4", "4.5", "5", "6"),
        *range(7, 33),
        *(36, 40, 48, 56, 64, 80, 96, 128, 192, 256),
    )
)

#: Share of δ for the orders of `anchored` and `static`; the remainder is the δ-side. It is close to
#: the share of `classic` on the default grid, so a change of profile hardly changes the δ-side.
ORDERS_SHARE = Fraction(13, 14)


class Profile(StrEnum):
    """Method that turns an (ε, δ) budget into thresholds."""

    CLASSIC = "classic"
    ANCHORED = "anchored"
    STATIC = "static"


#: A certificate with the limit of its loss, in quanta.
Threshold = tuple[Certificate, int]


@dataclass(frozen=True, slots=True)
class BudgetBound:
    """A bound that holds if the δ-side is within `delta` and all thresholds of a clause hold.

    `delta` is None for an unlimited budget. There are no thresholds below zero: a clause that no
    loss can satisfy is not offered.
    """

    clauses: tuple[tuple[Threshold, ...], ...]
    delta: Fraction | None


def bound_for_budget(budget: Budget, profile: Profile, orders: Sequence[Fraction]) -> BudgetBound:
    """Return the bound of a budget, rounded down once."""
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
            weights = _order_weights(epsilon, delta, profile, tuple(orders)) if delta else ()
            return _epsilon_bound(epsilon, delta, profile, weights)


def _epsilon_bound(
    epsilon: Fraction, delta: Fraction, profile: Profile, weights: Sequence[tuple[Fraction, float]]
) -> BudgetBound:
    thresholds = [(PURE, quanta_down(epsilon))]
    for order, weight in weights:
        limit = epsilon - conversion_cost(order, delta, weight)
        if limit >= 0:
            thresholds.append((renyi(order), quanta_down(limit)))
    delta_side = delta * (1 - _orders_share(profile, weights))
    return BudgetBound(clauses=tuple((t,) for t in thresholds), delta=delta_side)


def _orders_share(profile: Profile, weights: Sequence[tuple[Fraction, float]]) -> Fraction:
    """Return the share of δ with which the orders may fail.

    Adaptive profiles add the weights of all orders; `static` needs the weight of one order only.
    """
    if not weights:
        return Fraction(0)
    if profile is Profile.CLASSIC:
        return weight_sum([order for order, _ in weights])
    return ORDERS_SHARE


def conversion_amounts(
    budget: EpsilonDelta, profile: Profile, orders: Sequence[Fraction]
) -> tuple[tuple[Certificate, int], ...]:
    """Return the amount, in quanta, that converts a loss in each certificate to ε.

    The minimum of loss plus amount is the smallest ε whose thresholds would hold, for the split of
    δ of this budget. With `anchored` the split depends on ε (theory 8).
    """
    epsilon, delta = budget.epsilon, budget.delta
    weights = _order_weights(epsilon, delta, profile, tuple(orders)) if delta else ()
    costs = [(order, conversion_cost(order, delta, weight)) for order, weight in weights]
    return ((PURE, 0), *((renyi(o), quanta_up(max(cost, Fraction(0)))) for o, cost in costs))


def implies_bound(tighter: BudgetBound, looser: BudgetBound) -> bool:
    """Return whether `looser` holds whenever `tighter` does, for every loss (theory 1.5, A.5).

    Each clause of `tighter` must imply all thresholds of some clause of `looser`.
    """
    if looser.delta is not None and (tighter.delta is None or tighter.delta > looser.delta):
        return False
    return all(
        any(_implies_clause(offered, required) for required in looser.clauses)
        for offered in tighter.clauses
    )


def _implies_clause(offered: tuple[Threshold, ...], required: tuple[Threshold, ...]) -> bool:
    thresholds = dict(offered)
    return all(
        certificate in thresholds and thresholds[certificate] <= limit
        for certificate, limit in required
    )


def kappa(order: Fraction) -> float:
    """Return κ(α) = (1/α)(1 − 1/α)^(α−1): a classic threshold fails with mass κ(α)·δ."""
    alpha = float(order)
    return math.exp((alpha - 1) * math.log1p(-1 / alpha)) / alpha


def weight_sum(orders: Sequence[Fraction]) -> Fraction:
    """Return S, an upper bound of the sum of κ over a grid; `classic` is sound if S ≤ 1."""
    return sum((inflate(kappa(order)) for order in orders), Fraction(0))


@lru_cache(maxsize=4096)
def conversion_cost(order: Fraction, delta: Fraction, weight: float) -> Fraction:
    """Return an upper bound of ε − b(α), the part of ε that the conversion needs (theory 1.3)."""
    alpha = float(order)
    mass = math.log(alpha) + log_fraction(delta) + math.log(weight)
    terms = math.log1p(-1 / alpha), -mass / (alpha - 1)
    error = FLOAT_ERROR * Fraction(abs(terms[0]) + (abs(mass) + 1) / (alpha - 1))
    return Fraction(terms[0]) + Fraction(terms[1]) + error


def _order_weights(
    epsilon: Fraction, delta: Fraction, profile: Profile, orders: tuple[Fraction, ...]
) -> tuple[tuple[Fraction, float], ...]:
    """Return the orders of a profile, each with its share of δ."""
    if profile is Profile.CLASSIC:
        return tuple((order, kappa(order)) for order in orders)
    if profile is Profile.STATIC:
        return tuple((order, float(ORDERS_SHARE)) for order in STATIC_ORDERS)
    half = float(ORDERS_SHARE) / 2
    anchor = anchor_order(epsilon, delta)
    classic = [(order, conversion_cost(order, delta, kappa(order))) for order in orders]
    usable = [order for order, cost in classic if order != anchor and cost <= epsilon]
    total = sum(kappa(order) for order in usable) or 1.0
    spread = tuple((order, half * kappa(order) / total) for order in usable)
    return ((anchor, half if usable else 2 * half), *spread)


@lru_cache(maxsize=4096)
def anchor_order(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return α*, the order at which (ε, δ) admits the largest ρ, to three decimals."""

    def capacity(log_excess: float) -> float:
        alpha = 1 + math.exp(log_excess)
        cost = math.log1p(-1 / alpha) - (math.log(alpha) + log_fraction(delta)) / (alpha - 1)
        return (float(epsilon) - cost) / alpha

    low, high = math.log(0.02), math.log(1e5)
    for _ in range(200):
        third = (high - low) / 3
        if capacity(low + third) < capacity(high - third):
            low += third
        else:
            high -= third
    return Fraction(round((1 + math.exp((low + high) / 2)) * 1000), 1000)
