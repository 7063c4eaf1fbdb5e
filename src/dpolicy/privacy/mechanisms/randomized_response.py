"""Randomized response over two or k values: exact bounds (theory 3.2).

Two values are RR_ε, the worst of all ε-DP mechanisms. k values with noise ν have the curve
log(hi^α lo^{1−α} + lo^α hi^{1−α} + (k−2)·lo)/(α−1). The first cost rules charge a group as a pure
mechanism, the second by composition: each unit determines one answer, which has its own noise
(docs/theory/tighter-costs.md, 6). The number of answers is no secret, so the bounds do not hold
under add-remove.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.certificates import inflate
from dpolicy.privacy.loss_distribution.loss_pairs import KaryPair, LossPair
from dpolicy.privacy.mechanisms.divergence_bounds import (
    DivergenceBounds,
    pure_dp_bounds,
    smallest_curve,
)
from dpolicy.privacy.mechanisms.mechanism import Mechanism, MechanismKind
from dpolicy.privacy.mechanisms.parameters import ParameterReader
from dpolicy.privacy.reserves.ladder_costs import pure_ladder_costs
from dpolicy.privacy.units.privacy_units import NeighbouringRelation


@dataclass(frozen=True, slots=True)
class RandomizedResponse(Mechanism):
    """Randomized response that gives the true one of two answers with probability `truth`."""

    truth: Fraction

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return pure ε = k·log(p/(1−p))."""
        return pure_dp_bounds(k * math.log1p(float((2 * self.truth - 1) / (1 - self.truth))))

    def tighter_bounds(self, k: int) -> DivergenceBounds:
        """Return the bounds of k answers."""
        return _answer_bounds(self, k)


@dataclass(frozen=True, slots=True)
class KaryResponse(Mechanism):
    """Randomized response over `values` answers.

    It keeps the true answer with probability 1 − `noise`, and otherwise draws one of all answers
    uniformly.
    """

    values: int
    noise: Fraction

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return pure ε = k·log(hi/lo); for one unit, with the exact curve."""
        low = self.noise / self.values
        epsilon = math.log1p(float((1 - self.noise) / low))
        if k > 1:
            return pure_dp_bounds(k * epsilon)
        lowest = float(low)
        return pure_dp_bounds(epsilon, curve=lambda order: _kary_divergence(epsilon, lowest, order))

    def tighter_bounds(self, k: int) -> DivergenceBounds:
        """Return the bounds of k answers."""
        return _answer_bounds(self, k)

    def loss_pair(self, k: int) -> tuple[int, LossPair | None]:
        """Return the pair of two different true answers; for a group, the pair of its pure ε."""
        if k > 1:
            return Mechanism.loss_pair(self, k)
        return 1, KaryPair(self.values, self.noise)


def _answer_bounds(mechanism: Mechanism, k: int) -> DivergenceBounds:
    """Return the smaller bounds of k independent answers and of a pure mechanism."""
    one, group = mechanism.bounds_without_sampling(1), mechanism.bounds_without_sampling(k)
    answer, grouped = smallest_curve(one), smallest_curve(group)
    epsilon = float(inflate(float(one.pure))) * (1 + 2.0**-50)
    return DivergenceBounds(
        group.pure,
        min(k * one.rho, group.rho),
        min(k * one.mu_squared, group.mu_squared),
        curve=lambda order: min(k * answer(order), grouped(order)),
        reserve_costs=lambda: tuple(k * cost for cost in pure_ladder_costs(epsilon)),
    )


def _kary_divergence(epsilon: float, low: float, order: float) -> float:
    """Return the divergence. With r = hi/lo, the sum is 1 + lo·(r^α − 1)(1 − r^{1−α}) > 1."""
    kept = -math.expm1(-(order - 1) * epsilon)
    if order * epsilon < 30:
        moment = math.log1p(low * math.expm1(order * epsilon) * kept)
    else:
        # log(1 + g) with g = lo·r^α·(1 − r^−α)·kept, in logarithms.
        gain = math.log(low) + order * epsilon + math.log(kept)
        gain += math.log1p(-math.exp(-order * epsilon))
        moment = max(gain, 0.0) + math.log1p(math.exp(-abs(gain)))
    return min(epsilon, moment / (order - 1))


def _build_response(
    reader: ParameterReader, count: int, rate: Fraction | None
) -> RandomizedResponse | KaryResponse:
    over_two, over_many = reader.has("truth"), reader.has("values") or reader.has("noise")
    if over_two == over_many:
        message = "`randomized-response` needs either `truth`, or `values` and `noise`"
        reader.report("M009", message)
        return RandomizedResponse(Fraction(3, 4))
    if over_two:
        truth = reader.probability("truth", Fraction(1, 2), Fraction(1))
        return RandomizedResponse(truth, count=count, sampling_rate=rate)
    values = reader.positive_integer("values", minimum=2)
    noise = reader.probability("noise", Fraction(0), Fraction(1))
    return KaryResponse(values, noise, count=count, sampling_rate=rate)


KINDS = (
    MechanismKind(
        name="randomized-response",
        parameters=frozenset({"truth", "values", "noise"}),
        build=_build_response,
        example={"truth": Fraction(3, 4)},
        relations=frozenset({NeighbouringRelation.CHANGE, NeighbouringRelation.REPLACE}),
    ),
)
