"""Losses that a release declares: bounds that assume nothing beyond the statement (theory 3.10).

(ε, δ) is RR_ε outside of an event of probability δ, which goes to the δ-side. ρ with ξ is ξ + ρα.
μ is a Gaussian. A curve is known at its orders, and between them because (α−1)·rdp is convex; above
its largest order it is unknown. dpolicy cannot verify a declared loss: its author is responsible.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from operator import itemgetter

from dpolicy.privacy.certificates import MIN_ORDER
from dpolicy.privacy.conversion import group_delta
from dpolicy.privacy.mechanisms.divergence_bounds import (
    Amount,
    DivergenceBounds,
    linear_bounds,
    pure_dp_bounds,
)
from dpolicy.privacy.mechanisms.group_chain import group_divergence
from dpolicy.privacy.mechanisms.mechanism import Mechanism, MechanismKind
from dpolicy.privacy.mechanisms.parameters import (
    MAX_POINTS,
    MAX_STATED_ORDER,
    ParameterReader,
    format_number,
)
from dpolicy.privacy.mechanisms.sampling.subsampled import epsilon_on_sample

#: Relative deviation from convexity that is accepted: printed tables have rounded decimals.
CURVE_SLACK = Fraction(1, 1000)

#: Orders and divergences, sorted by order.
Points = tuple[tuple[Fraction, Fraction], ...]

_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")


@dataclass(frozen=True, slots=True)
class DeclaredPure(Mechanism):
    """(ε, δ)-DP; with δ = 0, pure DP."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return pure kε; the δ of a group grows with e^{kε} (theory 4.1)."""
        return _approximate_dp_bounds(self.epsilon, self.delta, k)

    def amplification_bounds(self, k: int, rate: Fraction) -> DivergenceBounds | None:
        """Return the bounds of (log(1 + q(e^ε − 1)), qδ)-DP if there is a δ; otherwise None."""
        if not self.delta:
            return None
        epsilon = epsilon_on_sample(float(self.epsilon), float(rate))
        return _approximate_dp_bounds(epsilon, rate * self.delta, k)


@dataclass(frozen=True, slots=True)
class DeclaredZcdp(Mechanism):
    """(ξ, ρ)-zCDP: a divergence of at most ξ + ρα at every order."""

    rho: Fraction
    xi: Fraction = Fraction(0)

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return k²ρα, with ξ through the chain bound; ξ + ρα ≤ (ξ + ρ)α bounds ρ."""
        if not self.xi:
            return linear_bounds(k * k * self.rho)
        slope, shift = float(k * k * self.rho), float(self.xi)

        def curve(order: float) -> float:
            return slope * order + group_divergence(lambda _: shift, k, order)

        return DivergenceBounds(
            rho=k * k * (self.rho + self.xi),
            curve=curve,
            exact=self._exact_divergence if k == 1 else None,
        )

    def _exact_divergence(self, order: Fraction) -> Amount:
        return self.xi + self.rho * order


@dataclass(frozen=True, slots=True)
class DeclaredGdp(Mechanism):
    """μ-Gaussian DP."""

    mu: Fraction

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return ρ = (kμ)²/2."""
        mu_squared = (k * self.mu) ** 2
        return linear_bounds(mu_squared / 2, mu_squared)


@dataclass(frozen=True, slots=True)
class DeclaredCurve(Mechanism):
    """Rényi divergences at stated orders, sorted by order."""

    points: Points

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return the stated points for one unit, and the chain bound through them for a group."""
        orders = [float(order) for order, _ in self.points]
        moments = [float((order - 1) * value) for order, value in self.points]

        def divergence(order: float) -> float:
            position = bisect_left(orders, order)
            if position == 0 or order == orders[position]:
                return moments[position] / (orders[position] - 1)
            part = (order - orders[position - 1]) / (orders[position] - orders[position - 1])
            return ((1 - part) * moments[position - 1] + part * moments[position]) / (order - 1)

        def curve(order: float) -> float:
            return math.inf if k * order > orders[-1] else group_divergence(divergence, k, order)

        if k == 1:
            return DivergenceBounds(
                curve=curve, exact=lambda order: _interpolate(self.points, order)
            )
        return DivergenceBounds(curve=curve)


def _approximate_dp_bounds(epsilon: Amount, delta: Fraction, k: int) -> DivergenceBounds:
    """Return the bounds of (ε, δ)-DP for a group of k; no bound at all if its δ reaches 1."""
    grown = group_delta(epsilon, delta, k)
    return DivergenceBounds() if grown is None else pure_dp_bounds(k * epsilon, grown)


def _interpolate(points: Points, order: Fraction) -> Amount:
    """Return the bound at any order. Below the first stated order, it is that of the first."""
    position = bisect_left(points, order, key=itemgetter(0))
    if position == len(points):
        return math.inf
    above, value = points[position]
    if position == 0 or order == above:
        return value
    below, lower = points[position - 1]
    part = (order - below) / (above - below)
    return ((1 - part) * (below - 1) * lower + part * (above - 1) * value) / (order - 1)


#: Optional parameters of each notion.
_NOTIONS = {
    "epsilon": frozenset({"delta"}),
    "rho": frozenset({"xi"}),
    "mu": frozenset[str](),
    "renyi": frozenset[str](),
}


def _build_declared(reader: ParameterReader, count: int, rate: Fraction | None) -> Mechanism:
    notions = [name for name in _NOTIONS if reader.has(name)]
    if len(notions) != 1:
        present = " and ".join(f"`{name}`" for name in notions) or "none of them"
        message = f"`declared` needs one of `epsilon`, `rho`, `mu`, `renyi`, not {present}"
        reader.report("M009", message)
        return DeclaredPure(Fraction(1))
    match notions[0]:
        case "epsilon":
            delta = reader.delta()
            epsilon = reader.not_negative("epsilon") if delta else reader.positive("epsilon")
            return DeclaredPure(epsilon, delta, count=count, sampling_rate=rate)
        case "rho":
            rho, xi = reader.positive("rho"), reader.not_negative("xi")
            return DeclaredZcdp(rho, xi, count=count, sampling_rate=rate)
        case "mu":
            return DeclaredGdp(reader.positive("mu"), count=count, sampling_rate=rate)
    return DeclaredCurve(_read_points(reader), count=count, sampling_rate=rate)


def _read_points(reader: ParameterReader) -> Points:
    """Return the stated curve, sorted by order; a placeholder if it is invalid."""
    placeholder = ((Fraction(2), Fraction(1)),)
    stated = reader.raw("renyi")
    if not isinstance(stated, Mapping) or not 1 <= len(stated) <= MAX_POINTS:
        reader.report("M004", f"`renyi` must map 1 to {MAX_POINTS} orders to divergences")
        return placeholder
    pairs = [(_read_order(reader, a), _read_divergence(reader, r)) for a, r in stated.items()]
    if any(order is None or divergence is None for order, divergence in pairs):
        return placeholder
    points = sorted((order, divergence) for order, divergence in pairs if order and divergence)
    if len({order for order, _ in points}) < len(points):
        reader.report("M009", "`renyi` states one order twice")
        return placeholder
    _check_curve(reader, points)
    return tuple(points)


def _read_order(reader: ParameterReader, value: object) -> Fraction | None:
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = Fraction(value)  # JSON keys are text
    order = reader.number("an order of `renyi`", value)
    if order is not None and not MIN_ORDER <= order <= MAX_STATED_ORDER:
        limits = f"at least {format_number(MIN_ORDER)} and at most {MAX_STATED_ORDER}"
        reader.report("M011", f"order `{format_number(order)}` of `renyi` must be {limits}")
        return None
    return order


def _read_divergence(reader: ParameterReader, value: object) -> Fraction | None:
    divergence = reader.number("a value of `renyi`", value)
    if divergence is None or not reader.check_size("a value of `renyi`", divergence):
        return None
    return divergence


def _check_curve(reader: ParameterReader, points: list[tuple[Fraction, Fraction]]) -> None:
    """Report a curve that falls, or whose (α−1)·divergence is not convex from its zero at α = 1."""
    for (low, before), (high, after) in pairwise(points):
        if after < before:
            first = f"`{format_number(before)}` at `{format_number(low)}`"
            pair = f"{first} to `{format_number(after)}` at `{format_number(high)}`"
            reader.report("M012", f"`renyi` falls from {pair}; a divergence grows with the order")
            return
    moments = [(Fraction(1), Fraction(0)), *((a, (a - 1) * r) for a, r in points)]
    slopes = [(y - x) / (b - a) for (a, x), (b, y) in pairwise(moments)]
    for (order, _), (slope, next_slope) in zip(points, pairwise(slopes), strict=False):
        if next_slope < slope * (1 - CURVE_SLACK):
            message = f"`renyi` is not log-convex around order `{format_number(order)}`"
            reader.report("M013", f"{message}; help: check the values, or leave out that order")
            return


KINDS = (
    MechanismKind(
        name="declared",
        parameters=frozenset({"epsilon", "delta", "rho", "xi", "mu", "renyi"}),
        build=_build_declared,
        example={"epsilon": 1},
        restatable=frozenset({"epsilon", "delta", "rho", "xi", "mu", "renyi"}),
        noise_parameters={"epsilon": -1, "rho": -2, "mu": -1},
        unscalable=frozenset({"renyi", "xi"}),
        variants=_NOTIONS,
    ),
)
