"""Laplace noise, continuous or discrete: the exact Rényi curve (theory 3.3).

With e = kΔ/b, (α−1)·rdp = log(w·e^{(α−1)e} + (1−w)·e^{−αe}), w = α/(2α−1). The discrete curve has
the same form in the shift s = kΔ: P·e^{(α−1)s/b} + Q·e^{−αs/b} with P + Q = 1. The logarithm of a
sum of exponentials is convex in the shift and 0 at 0, hence super-additive: in several dimensions
the worst case is all of the L1 sensitivity in one coordinate, for both. In the first cost rules ρ
and μ² are those of any pure mechanism; in the second ρ is the KL divergence e − 1 + e^{−e}, and
μ = 2Φ⁻¹(1 − e^{−e/2}/2), in any dimension (docs/theory/tighter-costs.md, statement 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from dpolicy.privacy.conversion import pure_to_mu_squared
from dpolicy.privacy.loss_distribution.loss_pairs import GeometricPair, LaplacePair, LossPair
from dpolicy.privacy.mechanisms.divergence_bounds import DivergenceBounds, pure_dp_bounds
from dpolicy.privacy.mechanisms.mechanism import Mechanism, MechanismKind
from dpolicy.privacy.mechanisms.parameters import ParameterReader
from dpolicy.privacy.reserves.ladder_costs import laplace_costs


@dataclass(frozen=True, slots=True)
class Laplace(Mechanism):
    """Laplace noise of scale `scale`; the sensitivity is in L1."""

    #: Zhu, Wang 2019.
    sampling_factor: ClassVar[int] = 1

    scale: Fraction
    sensitivity: Fraction = Fraction(1)

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return pure ε = kΔ/b with the curve of the Laplace distribution."""
        epsilon = k * self.sensitivity / self.scale
        e = float(epsilon)
        return pure_dp_bounds(
            epsilon,
            curve=lambda order: laplace_divergence(e, order),
            reserve_costs=lambda: laplace_costs(e),
        )

    def tighter_bounds(self, k: int) -> DivergenceBounds:
        """Return the bounds with ρ and μ² of the Laplace distribution."""
        e = float(k * self.sensitivity / self.scale)
        bounds = self.bounds_without_sampling(k)
        return replace(bounds, rho=_excess(-e), mu_squared=laplace_mu_squared(e))

    def loss_pair(self, k: int) -> tuple[int, LossPair]:
        """Return Laplace noise moved by kΔ/b: the worst case in any number of dimensions."""
        return 1, LaplacePair(k * self.sensitivity / self.scale)


@dataclass(frozen=True, slots=True)
class DiscreteLaplace(Mechanism):
    """Two-sided geometric noise, P(x) ∝ exp(−|x|/scale), added to integers."""

    scale: Fraction
    sensitivity: Fraction = Fraction(1)

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return pure ε = kΔ/b with the curve of the discrete distribution."""
        step, shift = float(1 / self.scale), float(k * self.sensitivity)
        epsilon = k * self.sensitivity / self.scale
        if shift < 1:  # an integer cannot move by less than 1: use the bounds that ε implies
            return pure_dp_bounds(epsilon)
        return pure_dp_bounds(
            epsilon, curve=lambda order: discrete_laplace_divergence(step, shift, order)
        )

    def loss_pair(self, k: int) -> tuple[int, LossPair]:
        """Return the noise moved by kΔ if that is an integer, and otherwise the pair of ε."""
        shift = k * self.sensitivity
        if shift.denominator > 1:
            return 1, GeometricPair(shift / self.scale)
        return 1, GeometricPair(1 / self.scale, shift.numerator)


def laplace_divergence(e: float, order: float) -> float:
    """Return the Rényi divergence between Laplace distributions that are e scales apart."""
    weight, other = order / (2 * order - 1), (order - 1) / (2 * order - 1)
    if (order - 1) * e < 1:
        # The terms of first order cancel exactly; the remaining terms are positive.
        excess = weight * _excess((order - 1) * e) + other * _excess(-order * e)
        moment = math.log1p(excess)
    else:
        tail = (order - 1) / order * math.exp(-(2 * order - 1) * e)
        moment = (order - 1) * e + math.log(weight) + math.log1p(tail)
    return min(e, moment / (order - 1))


def laplace_mu_squared(e: float) -> float:
    """Return the smallest μ² of Laplace distributions that are e scales apart. Not inflated.

    A pure ε of log(2e^{e/2} − 1) has the same μ.
    """
    same = math.log1p(2 * math.expm1(e / 2)) if e < 1 else e / 2 + math.log(2 - math.exp(-e / 2))
    return pure_to_mu_squared(same)


def discrete_laplace_divergence(step: float, shift: float, order: float) -> float:
    """Return the Rényi divergence of P(x) ∝ exp(−step·|x|) from P moved by `shift` ≥ 1."""
    up, down = (order - 1) * step, order * step
    spread = -math.expm1(-(2 * order - 1) * step)
    x = math.exp(-step)
    p = (1 - math.expm1(-step) * (1 - spread) / spread) / (1 + x)
    if shift * up >= 1 or down > 600:
        q = -x * math.expm1(-2 * up) / (1 + x) / spread
        moment = shift * up + math.log(p) + math.log1p(q / p * math.exp(-shift * (up + down)))
    else:
        # The sum is 1 + g·V + P·(e^up − 1)(U − V) with U, V the geometric sums of the shift and g
        # its value at a shift of one, that of randomized response. All terms are positive.
        one = 2 * math.sinh(down / 2) * math.sinh(up / 2) / math.cosh(step / 2)
        grown = _excess(shift * up) - shift * _excess(up)
        shrunk = _excess(-shift * down) - shift * _excess(-down)
        v = math.expm1(-shift * down) / math.expm1(-down)
        gap = grown - math.expm1(up) * shrunk / math.expm1(-down)
        moment = math.log1p(one * v + p * gap)
    return min(shift * step, moment / (order - 1))


def _excess(x: float) -> float:
    """Return e^x − 1 − x without cancellation near zero."""
    if abs(x) > 0.1:
        return math.expm1(x) - x
    tail = 1 + x / 7 * (1 + x / 8 * (1 + x / 9 * (1 + x / 10)))
    return x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * tail))))


def _build_laplace(reader: ParameterReader, count: int, rate: Fraction | None) -> Laplace:
    scale, sensitivity = reader.positive("scale"), reader.positive("sensitivity", Fraction(1))
    return Laplace(scale, sensitivity, count=count, sampling_rate=rate)


def _build_discrete_laplace(
    reader: ParameterReader, count: int, rate: Fraction | None
) -> DiscreteLaplace:
    scale, sensitivity = reader.positive("scale"), reader.positive("sensitivity", Fraction(1))
    return DiscreteLaplace(scale, sensitivity, count=count, sampling_rate=rate)


KINDS = (
    MechanismKind(
        name="laplace",
        parameters=frozenset({"scale", "sensitivity"}),
        build=_build_laplace,
        example={"scale": 10},
        restatable=frozenset({"sensitivity"}),
        noise_parameters={"scale": 1},
        calibrated="scale",
    ),
    MechanismKind(
        name="discrete-laplace",
        parameters=frozenset({"scale", "sensitivity"}),
        build=_build_discrete_laplace,
        example={"scale": 10},
        restatable=frozenset({"sensitivity"}),
        noise_parameters={"scale": 1},
        calibrated="scale",
    ),
)
