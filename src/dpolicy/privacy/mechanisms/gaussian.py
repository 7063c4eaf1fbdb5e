"""Gaussian noise → exact bounds: ρ = Δ²/(2σ²), μ = Δ/σ (theory 3.1, 3.6, 3.8, 3.9).

A group of k has k times the sensitivity, exactly (4.1). The discrete Gaussian obeys the same Rényi
bound (Canonne, Kamath, Steinke 2020, Theorem 4) but is not μ-GDP. DP-SGD is one Gaussian per step
on a Poisson sample; the sampling is added in `cost.py`. Not checked: the sensitivity, the clipping
and the participation schema that were stated.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.mechanisms.divergence_bounds import DivergenceBounds, linear_bounds


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Continuous Gaussian noise of standard deviation `sigma`; the sensitivity is in L2."""

    sigma: Fraction
    sensitivity: Fraction = Fraction(1)
    count: int = 1
    sampling_rate: Fraction | None = None


@dataclass(frozen=True, slots=True)
class DiscreteGaussian:
    """Integer noise with the parameter `sigma`, added to integers; the sensitivity is in L2."""

    sigma: Fraction
    sensitivity: Fraction = Fraction(1)
    count: int = 1
    sampling_rate: Fraction | None = None


@dataclass(frozen=True, slots=True)
class DpSgd:
    """Noisy gradient steps on Poisson samples of whole units."""

    noise_multiplier: Fraction
    sampling_rate: Fraction | None
    steps: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class TreeAggregation:
    """DP-FTRL: prefix sums from a binary tree; a unit takes part `participations` times."""

    noise_multiplier: Fraction
    steps: int
    participations: int = 1
    count: int = 1
    sampling_rate: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Pate:
    """GNMax with noise `sigma` on the votes, charged without looking at them (theory 3.9)."""

    sigma: Fraction
    queries: int
    count: int = 1
    sampling_rate: Fraction | None = None


def gaussian(m: Gaussian, k: int) -> DivergenceBounds:
    """ρ = (kΔ)²/(2σ²) and μ² = (kΔ)²/σ²."""
    return _gaussian(1, k * m.sensitivity.numerator, m.sigma * m.sensitivity.denominator)


def discrete_gaussian(m: DiscreteGaussian, k: int) -> DivergenceBounds:
    """The same ρ, and no μ."""
    rho = _gaussian(1, k * m.sensitivity.numerator, m.sigma * m.sensitivity.denominator).rho
    return linear_bounds(rho)


def dp_sgd_step(m: DpSgd, k: int) -> DivergenceBounds:
    """One step with every unit in the batch."""
    return _gaussian(1, k, m.noise_multiplier)


def tree_aggregation(m: TreeAggregation, k: int) -> DivergenceBounds:
    """A unit is in ⌊log₂ n⌋ + 1 nodes each time it takes part."""
    return _gaussian(m.steps.bit_length(), k * m.participations, m.noise_multiplier)


def pate(m: Pate, k: int) -> DivergenceBounds:
    """A teacher that changes its vote moves two counts, so Δ = √2 for each query.

    All queries are one run: the same teachers answer them, so a sample is drawn once for all.
    """
    return _gaussian(2 * m.queries, k, m.sigma)


def _gaussian(times: int, distance: int, sigma: Fraction) -> DivergenceBounds:
    """μ² = times·(distance/σ)² and half of it as ρ, in integers for speed."""
    numerator = times * (distance * sigma.denominator) ** 2
    denominator = sigma.numerator**2
    return linear_bounds(Fraction(numerator, 2 * denominator), Fraction(numerator, denominator))
