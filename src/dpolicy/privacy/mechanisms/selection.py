"""Choosing the best of many → pure or bounded-range bounds (theory 3.4, 3.5).

The exponential mechanism, and report-noisy-max with Gumbel noise, have bounded range η: their
divergence is at most min(αη²/8, RR_η(α)) (Cesar, Rogers 2021). Laplace and exponential noise give
ε-DP only. The sparse vector technique costs ε₁ + ε₂ (+ ε₃ for released values) for any number of
queries (Lyu, Su, Li 2017). A bounded range adds up along a chain, as a pure ε does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from dpolicy.privacy.mechanisms.divergence_bounds import DivergenceBounds, pure_dp_bounds


class NoisyMaxNoise(StrEnum):
    """The noise that report-noisy-max may add."""

    GUMBEL = "gumbel"
    LAPLACE = "laplace"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class ExponentialMechanism:
    """The exponential mechanism; `epsilon` is the bounded range η."""

    epsilon: Fraction
    count: int = 1
    sampling_rate: Fraction | None = None


@dataclass(frozen=True, slots=True)
class ReportNoisyMax:
    """The index of the largest noisy score."""

    epsilon: Fraction
    noise: NoisyMaxNoise
    count: int = 1
    sampling_rate: Fraction | None = None


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Above-threshold answers until `cutoff` of them; the cutoff is in the noise, not the cost."""

    epsilon_threshold: Fraction
    epsilon_queries: Fraction
    cutoff: int
    epsilon_values: Fraction = Fraction(0)
    count: int = 1
    sampling_rate: Fraction | None = None


def exponential(m: ExponentialMechanism, k: int) -> DivergenceBounds:
    """The smaller of ρ = (kη)²/8, exactly, and what pure kη gives."""
    return _bounded_range(k * m.epsilon)


def report_noisy_max(m: ReportNoisyMax, k: int) -> DivergenceBounds:
    """Bounded range for Gumbel noise, pure for the others."""
    return (
        _bounded_range(k * m.epsilon)
        if m.noise is NoisyMaxNoise.GUMBEL
        else pure_dp_bounds(k * m.epsilon)
    )


def sparse_vector(m: SparseVector, k: int) -> DivergenceBounds:
    """Pure k(ε₁ + ε₂ + ε₃)."""
    return pure_dp_bounds(k * (m.epsilon_threshold + m.epsilon_queries + m.epsilon_values))


def _bounded_range(eta: Fraction) -> DivergenceBounds:
    bounds = pure_dp_bounds(eta)
    return replace(bounds, rho=min(eta * eta / 8, bounds.rho))
