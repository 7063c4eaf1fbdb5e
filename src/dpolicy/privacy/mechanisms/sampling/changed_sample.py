"""Gaussian noise on a Poisson sample in which one unit changes its data (theory 3.6).

A unit moves a run by at most Δ when it is added. Then a changed unit, sampled with rate q, costs at
most D_α of (1−q)N(0,σ²) + qN(Δ,σ²) from (1−q)N(0,σ²) + qN(−Δ,σ²), and no other pair of data costs
more (docs/theory/tighter-costs.md, statement 1). k changed units are a chain of k such steps.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpolicy.privacy.mechanisms.divergence_bounds import (
    Curve,
    DivergenceBounds,
    linear_bounds,
)
from dpolicy.privacy.mechanisms.group_chain import group_divergence
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.mechanisms.sampling.gaussian_mixture import mixture_moment
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

#: Orders at which chains evaluate the curve. Between them (α−1)·D_α is convex.
CHAIN_ORDERS = (
    *(1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0),
    *(32.0, 40.0, 48.0, 64.0, 80.0, 96.0, 128.0, 160.0, 192.0, 256.0),
)


@dataclass(frozen=True, slots=True)
class ChangedSample(Mechanism):
    """Runs of Gaussian noise; `ratio` is Δ/σ, where one added unit moves a run by at most Δ."""

    sampling_relations: ClassVar[frozenset[NeighbouringRelation]] = frozenset(
        {NeighbouringRelation.CHANGE, NeighbouringRelation.REPLACE}
    )

    ratio: Fraction

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return the bounds of a sensitivity of 2kΔ."""
        mu_squared = (2 * k * self.ratio) ** 2
        return linear_bounds(mu_squared / 2, mu_squared)

    def amplification_bounds(self, k: int, rate: Fraction) -> DivergenceBounds:
        """Return the exact curve of a changed unit, for a group through the chain bound."""
        whole = self.bounds_without_sampling(k)
        slope, part, ratio = float(whole.rho), float(rate), float(self.ratio)

        def one(order: float) -> float:
            return mixture_moment(order, part, ratio, True) / (order - 1)

        def curve(order: float) -> float:
            sampled = one(order) if k == 1 else group_divergence(_interpolate(one), k, order)
            return min(slope * order, sampled)

        return DivergenceBounds(rho=whole.rho, mu_squared=whole.mu_squared, curve=curve)


def _interpolate(curve: Curve) -> Curve:
    """Return an upper bound of a curve at any order, from its values at `CHAIN_ORDERS`."""

    def interpolated(order: float) -> float:
        position = bisect_left(CHAIN_ORDERS, order)
        if position == len(CHAIN_ORDERS):
            return float("inf")
        high = CHAIN_ORDERS[position]
        if position == 0 or order == high:
            return curve(high)
        low = CHAIN_ORDERS[position - 1]
        part = (order - low) / (high - low)
        moment = (1 - part) * (low - 1) * curve(low) + part * (high - 1) * curve(high)
        return moment / (order - 1)

    return interpolated
