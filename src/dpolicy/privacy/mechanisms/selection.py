"""Selection of the best of many candidates: pure or bounded-range bounds (theory 3.4, 3.5).

The exponential mechanism, and report-noisy-max with Gumbel noise, have bounded range η: their
divergence is at most min(αη²/8, RR_η(α)) (Cesar, Rogers 2021). Laplace and exponential noise give
ε-DP only. The sparse vector technique costs ε₁ + ε₂ (+ ε₃ for released values) for any number of
queries (Lyu, Su, Li 2017, Algorithm 7), if ε₂ and ε₃ are totals over all `cutoff` answers c: noise
Lap(Δ/ε₁) on the threshold, Lap(2cΔ/ε₂) on each query, Lap(cΔ/ε₃) on each value. Bounded ranges
add up along a chain of neighbours, as pure ε do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from dpolicy.privacy.mechanisms.divergence_bounds import DivergenceBounds, pure_dp_bounds
from dpolicy.privacy.mechanisms.mechanism import Mechanism, MechanismKind
from dpolicy.privacy.mechanisms.parameters import ParameterReader


class NoisyMaxNoise(StrEnum):
    """Noise distribution of report-noisy-max."""

    GUMBEL = "gumbel"
    LAPLACE = "laplace"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class ExponentialMechanism(Mechanism):
    """The exponential mechanism; `epsilon` is the bounded range η."""

    epsilon: Fraction

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return the bounds of a range kη."""
        return _range_bounds(k * self.epsilon)


@dataclass(frozen=True, slots=True)
class ReportNoisyMax(Mechanism):
    """Report-noisy-max: the index of the largest noisy score."""

    epsilon: Fraction
    noise: NoisyMaxNoise

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return the bounds of a range kε for Gumbel noise, and pure kε for other noise."""
        if self.noise is NoisyMaxNoise.GUMBEL:
            return _range_bounds(k * self.epsilon)
        return pure_dp_bounds(k * self.epsilon)


@dataclass(frozen=True, slots=True)
class SparseVector(Mechanism):
    """Sparse vector technique that stops after `cutoff` answers above the threshold.

    `epsilon_queries` and `epsilon_values` are totals over all answers. The cutoff scales the noise,
    so the cost does not depend on it.
    """

    epsilon_threshold: Fraction
    epsilon_queries: Fraction
    cutoff: int
    epsilon_values: Fraction = Fraction(0)

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return pure k(ε₁ + ε₂ + ε₃)."""
        epsilon = self.epsilon_threshold + self.epsilon_queries + self.epsilon_values
        return pure_dp_bounds(k * epsilon)


def _range_bounds(eta: Fraction) -> DivergenceBounds:
    """Return the bounds of pure η with the smaller of its ρ and the exact η²/8."""
    bounds = pure_dp_bounds(eta)
    return replace(bounds, rho=min(eta * eta / 8, bounds.rho))


def _build_exponential(
    reader: ParameterReader, count: int, rate: Fraction | None
) -> ExponentialMechanism:
    return ExponentialMechanism(reader.positive("epsilon"), count=count, sampling_rate=rate)


def _build_report_noisy_max(
    reader: ParameterReader, count: int, rate: Fraction | None
) -> ReportNoisyMax:
    epsilon = reader.positive("epsilon")
    hint = ""
    if reader.has("noise") and reader.raw("noise") == "gaussian":
        hint = "; help: charge the vector of scores as a `gaussian` with its L2 sensitivity"
    noise = NoisyMaxNoise(reader.choice("noise", list(NoisyMaxNoise), "M015", hint))
    return ReportNoisyMax(epsilon, noise, count=count, sampling_rate=rate)


def _build_sparse_vector(
    reader: ParameterReader, count: int, rate: Fraction | None
) -> SparseVector:
    threshold, queries = reader.positive("epsilon-threshold"), reader.positive("epsilon-queries")
    cutoff = reader.positive_integer("cutoff")
    values = reader.positive("epsilon-values") if reader.has("epsilon-values") else Fraction(0)
    return SparseVector(threshold, queries, cutoff, values, count=count, sampling_rate=rate)


_SPARSE_VECTOR_EPSILONS = ("epsilon-threshold", "epsilon-queries", "epsilon-values")

KINDS = (
    MechanismKind(
        name="exponential",
        parameters=frozenset({"epsilon"}),
        build=_build_exponential,
        example={"epsilon": 1},
        restatable=frozenset({"epsilon"}),
        noise_parameters={"epsilon": -1},
    ),
    MechanismKind(
        name="report-noisy-max",
        parameters=frozenset({"epsilon", "noise"}),
        build=_build_report_noisy_max,
        example={"epsilon": 1, "noise": "gumbel"},
        restatable=frozenset({"epsilon"}),
        noise_parameters={"epsilon": -1},
    ),
    MechanismKind(
        name="sparse-vector",
        parameters=frozenset({*_SPARSE_VECTOR_EPSILONS, "cutoff"}),
        build=_build_sparse_vector,
        example={"epsilon-threshold": 1, "epsilon-queries": 1, "cutoff": 1},
        restatable=frozenset(_SPARSE_VECTOR_EPSILONS),
        noise_parameters=dict.fromkeys(_SPARSE_VECTOR_EPSILONS, -1),
    ),
)
