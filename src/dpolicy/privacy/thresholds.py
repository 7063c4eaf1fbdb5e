"""Budget bounds: the thresholds and the δ-side that losses are compared with (theory 1.4, 2.4).

An (ε, δ) budget offers several certificates and is satisfied while one of them holds. That is sound
only if the failure probabilities of the certificates and the δ-side together stay within δ (the
union of filters, theory 2.3). Every profile therefore splits δ before any loss is charged:

    classic    order α fails with κ(α)·δ, which gives the textbook ε − log(1/δ)/(α−1)
    anchored   the reserves share 0.3 of the mass (theory/reserves); of the rest, an order near α*,
               at which the budget holds most ρ, gets three quarters, and one quarter is spread
               (`shares/anchored_shares.py`). Policies that were recorded with defaults 1 or 2 have
               no reserves: α* gets half of the mass, and the orders that classic would offer share
               the other half in proportion to κ
    static     every order has the full mass: sound only if costs are not chosen adaptively, that
               is, for per-release rules
    gaussian   the reserves share 0.8 of the mass; the orders share the rest in proportion to κ

The remaining part of δ is the δ-side of the bound: the limit for the sum of the stated δ, the
leaks. A policy states the share of δ for leaks; the orders share the rest. Without a statement,
`classic` keeps what the κ leave, and the other profiles keep `DEFAULT_LEAKS`.
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
from dpolicy.privacy.reserves.reserve_limits import reserve_limits, round_mass
from dpolicy.privacy.shares.chains import DeltaShares, order_limits, reserves_share

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

#: Share of δ that `anchored` and `static` keep for stated leaks if the policy states none.
DEFAULT_LEAKS = Fraction(1, 10)

#: The same share in version 0.2. Policies that were recorded by it keep their split.
LEAKS_OF_VERSION_0_2 = Fraction(1, 14)


class Profile(StrEnum):
    """Method that turns an (ε, δ) budget into thresholds."""

    CLASSIC = "classic"
    ANCHORED = "anchored"
    STATIC = "static"
    GAUSSIAN = "gaussian"

    @property
    def has_anchor(self) -> bool:
        """Whether the orders and their shares of δ depend on ε."""
        return self is Profile.ANCHORED


#: Share of the reserves under `gaussian`, of the part of δ that is not for stated leaks.
GAUSSIAN_RESERVES = Fraction(8, 10)


#: A certificate with the limit of its loss, in quanta.
Threshold = tuple[Certificate, int]


@dataclass(frozen=True, slots=True)
class BudgetBound:
    """A bound that holds if the δ-side is within `delta` and all thresholds of a clause hold.

    `delta` is None for an unlimited budget. There are no thresholds below zero: a clause that no
    loss can satisfy is not offered. A per-release rule with `exact` also holds if the loss
    distribution of the release certifies this budget.
    """

    clauses: tuple[tuple[Threshold, ...], ...]
    delta: Fraction | None
    exact: EpsilonDelta | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether every loss is within the bound."""
        return self.delta is None and () in self.clauses


def bound_for_budget(
    budget: Budget,
    profile: Profile,
    orders: Sequence[Fraction],
    leaks: Fraction | None = None,
    shares: DeltaShares | None = None,
    *,
    exact: bool = False,
) -> BudgetBound:
    """Return the bound of a budget, rounded down once.

    `leaks` is the share of δ for stated leaks; None is the default of the profile. `shares` split
    the rest of δ; None is the split of the profile by `orders`. `exact` is for per-release rules,
    whose costs are not chosen adaptively.
    """
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
            thresholds = [(PURE, quanta_down(epsilon))]
            for order, limit in _order_limits(budget, profile, tuple(orders), leaks, shares):
                if limit >= 0:
                    thresholds.append((renyi(order), quanta_down(limit)))
            thresholds += reserve_limits(epsilon, reserves_mass(budget, profile, leaks, shares))
            delta_side = delta * leaks_share(profile, orders, leaks)
            clauses = tuple((t,) for t in thresholds)
            return BudgetBound(clauses, delta_side, budget if exact and delta else None)


def leaks_share(profile: Profile, orders: Sequence[Fraction], leaks: Fraction | None) -> Fraction:
    """Return the share of δ for stated leaks: as stated, or the default of the profile."""
    if leaks is not None:
        return leaks
    return 1 - weight_sum(orders) if profile is Profile.CLASSIC else DEFAULT_LEAKS


def reserves_mass(
    budget: EpsilonDelta,
    profile: Profile,
    leaks: Fraction | None = None,
    shares: DeltaShares | None = None,
) -> Fraction:
    """Return the part of δ that all reserves share; 0 without reserves."""
    share = GAUSSIAN_RESERVES if profile is Profile.GAUSSIAN else reserves_share(shares or ())
    if not share:
        return Fraction(0)
    return round_mass(share * (1 - leaks_share(profile, (), leaks)) * budget.delta)


def conversion_amounts(
    budget: EpsilonDelta,
    profile: Profile,
    orders: Sequence[Fraction],
    leaks: Fraction | None = None,
    shares: DeltaShares | None = None,
) -> tuple[tuple[Certificate, int], ...]:
    """Return the amount, in quanta, that converts a loss in each certificate to ε.

    The minimum of loss plus amount, at least 0, is the smallest ε whose thresholds would hold, for
    the split of δ of this budget. An amount is below 0 if δ is large. With `anchored`
    the split depends on ε (theory 8). Reserves have no such amount: see `smallest_epsilon`.
    """
    limits = _order_limits(budget, profile, tuple(orders), leaks, shares)
    amounts = ((renyi(order), quanta_up(budget.epsilon - limit)) for order, limit in limits)
    return ((PURE, 0), *amounts)


def implies_bound(tighter: BudgetBound, looser: BudgetBound) -> bool:
    """Return whether `looser` holds whenever `tighter` does, for every loss (theory 1.5, A.5).

    Each clause of `tighter` must imply all thresholds of some clause of `looser`. A `tighter` bound
    that loss distributions can satisfy must also have the smaller ε and δ.
    """
    if tighter.exact is not None and not _implies_exact(tighter.exact, looser):
        return False
    if looser.delta is not None and (tighter.delta is None or tighter.delta > looser.delta):
        return False
    return all(
        any(_implies_clause(offered, required) for required in looser.clauses)
        for offered in tighter.clauses
    )


def _implies_exact(tighter: EpsilonDelta, looser: BudgetBound) -> bool:
    if looser.exact is None:
        return looser.is_unlimited
    return tighter.epsilon <= looser.exact.epsilon and tighter.delta <= looser.exact.delta


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


def _order_limits(
    budget: EpsilonDelta,
    profile: Profile,
    orders: tuple[Fraction, ...],
    leaks: Fraction | None,
    shares: DeltaShares | None,
) -> tuple[tuple[Fraction, Fraction], ...]:
    """Return the orders that have a share of δ, each with its threshold, which can be negative."""
    if shares is not None:
        mass = 1 - leaks_share(profile, orders, leaks)
        return order_limits(budget.epsilon, budget.delta, shares, mass)
    weights = _order_weights(budget, profile, orders, leaks)
    return tuple(
        (order, budget.epsilon - conversion_cost(order, budget.delta, weight))
        for order, weight in weights
    )


def _order_weights(
    budget: EpsilonDelta, profile: Profile, orders: tuple[Fraction, ...], leaks: Fraction | None
) -> tuple[tuple[Fraction, float], ...]:
    """Return the orders of a profile, each with its share of δ; none if no δ is left for them.

    The shares of `classic` and `anchored` sum to at most 1 − leaks, those of `gaussian` to what the
    reserves leave of it. Each order of `static` has the share 1 − leaks: it
    needs the mass of one order only.
    """
    epsilon, delta = budget.epsilon, budget.delta
    share = float(1 - leaks_share(profile, orders, leaks))
    if not delta or not share:
        return ()
    if profile is Profile.GAUSSIAN:
        share *= float(1 - GAUSSIAN_RESERVES)
        scale = min(1.0, share / float(weight_sum(orders))) if orders else 1.0
        return tuple((order, kappa(order) * scale) for order in orders)
    if profile is Profile.CLASSIC:
        scale = _classic_scale(orders, leaks)
        return tuple((order, kappa(order) * scale) for order in orders)
    if profile is Profile.STATIC:
        return tuple((order, share) for order in STATIC_ORDERS)
    half = share / 2
    anchor = anchor_order(epsilon, delta)
    classic = [(order, conversion_cost(order, delta, kappa(order))) for order in orders]
    usable = [order for order, cost in classic if order != anchor and cost <= epsilon]
    total = sum(kappa(order) for order in usable) or 1.0
    spread = tuple((order, half * kappa(order) / total) for order in usable)
    return ((anchor, half if usable else 2 * half), *spread)


def _classic_scale(orders: tuple[Fraction, ...], leaks: Fraction | None) -> float:
    """Return the factor of κ, at most 1, with which the orders share 1 − leaks."""
    if leaks is None:
        return 1.0
    return float(min(Fraction(1), (1 - leaks) / weight_sum(orders))) if orders else 1.0


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
