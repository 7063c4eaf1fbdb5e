"""Loss pairs: two distributions that dominate the outputs of a mechanism on neighbouring data.

A pair (P, Q) dominates a mechanism if no (ε, δ) curve of the mechanism is above that of the pair
(docs/theory/exact.md). All pairs here are symmetric: (P, Q) and (Q, P) have the same curve.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class GaussianPair:
    """N(0, 1) and N(μ, 1)."""

    mu_squared: Fraction


@dataclass(frozen=True, slots=True)
class DiscreteGaussianPair:
    """The discrete Gaussian of parameter σ, and the same moved by 1."""

    sigma: Fraction


@dataclass(frozen=True, slots=True)
class LaplacePair:
    """Laplace noise of scale 1, and the same moved by ε."""

    epsilon: Fraction


@dataclass(frozen=True, slots=True)
class GeometricPair:
    """P(x) ∝ exp(−step·|x|) on integers, and the same moved by `shift`.

    With a shift of 1 it is randomized response, which dominates every mechanism of pure ε = `step`.
    """

    step: Fraction
    shift: int = 1


@dataclass(frozen=True, slots=True)
class KaryPair:
    """Randomized response over `values` answers with the noise ν."""

    values: int
    noise: Fraction


LossPair = GaussianPair | DiscreteGaussianPair | LaplacePair | GeometricPair | KaryPair
