"""A loss that somebody states → bounds, with nothing assumed beyond the statement (theory 3.10).

(ε, δ) is RR_ε outside of a leak of probability δ, which goes to the δ-side. ρ with ξ is ξ + ρα; μ
is a Gaussian; a curve is known at its orders, between them because (α−1)·rdp is convex, and nowhere
above them. Nothing here can be verified by us: whoever states it answers for it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter

from dpolicy.privacy.conversion import group_delta
from dpolicy.privacy.mechanisms.divergence_bounds import (
    Amount,
    DivergenceBounds,
    linear_bounds,
    pure_dp_bounds,
)
from dpolicy.privacy.mechanisms.group_chain import group_divergence


@dataclass(frozen=True, slots=True)
class DeclaredPure:
    """(ε, δ)-DP; with δ = 0, pure."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    count: int = 1
    sampling_rate: Fraction | None = None


@dataclass(frozen=True, slots=True)
class DeclaredZcdp:
    """(ξ, ρ)-zCDP: a divergence of at most ξ + ρα at every order."""

    rho: Fraction
    xi: Fraction = Fraction(0)
    count: int = 1
    sampling_rate: Fraction | None = None


@dataclass(frozen=True, slots=True)
class DeclaredGdp:
    """μ-Gaussian DP."""

    mu: Fraction
    count: int = 1
    sampling_rate: Fraction | None = None


@dataclass(frozen=True, slots=True)
class DeclaredCurve:
    """Rényi divergences at stated orders, sorted."""

    points: tuple[tuple[Fraction, Fraction], ...]
    count: int = 1
    sampling_rate: Fraction | None = None


def declared_pure(m: DeclaredPure, k: int) -> DivergenceBounds:
    """Pure kε; the δ of a group grows with e^{kε} (theory 4.1)."""
    return approximate_dp_bounds(m.epsilon, m.delta, k)


def approximate_dp_bounds(epsilon: Amount, delta: Fraction, k: int) -> DivergenceBounds:
    """(ε, δ)-DP for a group of k; nothing at all once its δ reaches 1."""
    grown = group_delta(epsilon, delta, k)
    return DivergenceBounds() if grown is None else pure_dp_bounds(k * epsilon, grown)


def declared_zcdp(m: DeclaredZcdp, k: int) -> DivergenceBounds:
    """k²ρα, and ξ through the chain; ξ + ρα ≤ (ξ + ρ)α bounds ρ."""
    if not m.xi:
        return linear_bounds(k * k * m.rho)
    rho = k * k * (m.rho + m.xi)
    straight, shift = float(k * k * m.rho), float(m.xi)

    def curve(order: float) -> float:
        return straight * order + group_divergence(lambda _: shift, k, order)

    return DivergenceBounds(rho=rho, curve=curve, exact=_stated_zcdp(m) if k == 1 else None)


def _stated_zcdp(m: DeclaredZcdp) -> Callable[[Fraction], Amount]:
    return lambda order: m.xi + m.rho * order


def declared_gdp(m: DeclaredGdp, k: int) -> DivergenceBounds:
    """ρ = (kμ)²/2."""
    mu_squared = (k * m.mu) ** 2
    return linear_bounds(mu_squared / 2, mu_squared)


def declared_curve(m: DeclaredCurve, k: int) -> DivergenceBounds:
    """The stated points, or the chain bound through them."""
    orders = [float(order) for order, _ in m.points]
    moments = [float((order - 1) * value) for order, value in m.points]

    def stated(order: float) -> float:
        place = bisect_left(orders, order)
        if place == 0 or order == orders[place]:
            return moments[place] / (orders[place] - 1)
        part = (order - orders[place - 1]) / (orders[place] - orders[place - 1])
        return ((1 - part) * moments[place - 1] + part * moments[place]) / (order - 1)

    def curve(order: float) -> float:
        return math.inf if k * order > orders[-1] else group_divergence(stated, k, order)

    if k == 1:
        return DivergenceBounds(curve=curve, exact=lambda order: _interpolated(m.points, order))
    return DivergenceBounds(curve=curve)


def _interpolated(points: tuple[tuple[Fraction, Fraction], ...], order: Fraction) -> Amount:
    """The bound at an order that need not be stated; below the first, that of the first."""
    place = bisect_left(points, order, key=itemgetter(0))
    if place == len(points):
        return math.inf
    above, value = points[place]
    if place == 0 or order == above:
        return value
    below, lower = points[place - 1]
    part = (order - below) / (above - below)
    return ((1 - part) * (below - 1) * lower + part * (above - 1) * value) / (order - 1)
