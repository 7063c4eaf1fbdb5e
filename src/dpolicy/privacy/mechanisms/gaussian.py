"""Gaussian noise: exact bounds ρ = Δ²/(2σ²) and μ = Δ/σ (theory 3.1, 3.6, 3.8, 3.9).

A group of k units has exactly k times the sensitivity (4.1). The discrete Gaussian satisfies the
same Rényi bound (Canonne, Kamath, Steinke 2020, Theorem 4) but is not μ-GDP; beside a reserve its
cost is finite (theory/reserves). DP-SGD is one Gaussian
per step on a Poisson sample; `cost.py` applies the sampling. A noise multiplier is σ divided by the
L2 sensitivity of one step under the stated relation: the clipping norm under add-remove, twice the
clipping norm under change and replace. dpolicy cannot check the stated sensitivity, the clipping
and the participation schema.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpolicy.privacy.loss_distribution.loss_pairs import DiscreteGaussianPair, LossPair
from dpolicy.privacy.mechanisms.divergence_bounds import DivergenceBounds, linear_bounds
from dpolicy.privacy.mechanisms.mechanism import Mechanism, MechanismKind
from dpolicy.privacy.mechanisms.parameters import ParameterReader
from dpolicy.privacy.mechanisms.tree_participations import squared_sensitivity
from dpolicy.privacy.reserves.ladder_costs import LadderCosts, discrete_gaussian_costs


@dataclass(frozen=True, slots=True)
class Gaussian(Mechanism):
    """Continuous Gaussian noise of standard deviation `sigma`; the sensitivity is in L2."""

    #: Mironov, Talwar, Zhang 2019.
    sampling_factor: ClassVar[int] = 1

    sigma: Fraction
    sensitivity: Fraction = Fraction(1)

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return ρ = (kΔ)²/(2σ²) and μ² = (kΔ)²/σ²."""
        distance, scale = self.sensitivity.as_integer_ratio()
        return _gaussian_bounds(1, k * distance, self.sigma, scale)

    @property
    def gaussian_ratio(self) -> Fraction:
        """Δ/σ of one run."""
        return self.sensitivity / self.sigma


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(Mechanism):
    """Integer noise with the parameter `sigma`, added to integers; the sensitivity is in L2."""

    #: The noise is symmetric (docs/theory/tighter-costs.md, 7).
    tighter_sampling_factor: ClassVar[int | None] = 1

    sigma: Fraction
    sensitivity: Fraction = Fraction(1)

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return the ρ of the continuous Gaussian, without its μ."""
        distance, scale = self.sensitivity.as_integer_ratio()
        rho = _gaussian_bounds(1, k * distance, self.sigma, scale).rho
        return DivergenceBounds(rho=rho, reserve_costs=lambda: self._reserve_costs(k))

    def _reserve_costs(self, k: int) -> LadderCosts:
        """Return the costs of whole steps: the square of the distance is rounded down, above 0."""
        square = math.floor((k * self.sensitivity) ** 2)
        return discrete_gaussian_costs(float(self.sigma), max(1, square))

    def loss_pair(self, k: int) -> tuple[int, LossPair | None]:
        """Return a move by 1 in each of ⌊(kΔ)²⌋ coordinates; no pair from 4 coordinates on.

        Integers with a sum of squares below 4 are 0 and ±1. From 4 on there are several worst
        cases, such as one move by 2.
        """
        squares = math.floor((k * self.sensitivity) ** 2)
        if squares > 3:
            return 1, None
        return max(squares, 1), DiscreteGaussianPair(self.sigma)


@dataclass(frozen=True, slots=True)
class DpSgd(Mechanism):
    """Noisy gradient steps on Poisson samples of whole units; each step draws its own sample."""

    noise_multiplier: Fraction
    steps: int

    @property
    def run_count(self) -> int:
        """Number of steps of all runs."""
        return self.steps * self.count

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return the bounds of one step in which the batch contains every unit."""
        return _gaussian_bounds(1, k, self.noise_multiplier)

    @property
    def gaussian_ratio(self) -> Fraction:
        """Δ/σ of one step."""
        return 1 / self.noise_multiplier

    def single_run(self) -> Mechanism:
        """Return one step, so that DP-SGD and Gaussians share sampled curves."""
        return Gaussian(self.noise_multiplier)


@dataclass(frozen=True, slots=True)
class TreeAggregation(Mechanism):
    """DP-FTRL: prefix sums from a binary tree; a unit takes part `participations` times."""

    noise_multiplier: Fraction
    steps: int
    participations: int = 1

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return the bounds of ⌊log₂ n⌋ + 1 nodes for each participation of a unit."""
        nodes = self.steps.bit_length()
        return _gaussian_bounds(nodes, k * self.participations, self.noise_multiplier)

    def tighter_bounds(self, k: int) -> DivergenceBounds:
        """Return the bounds for the worst choice of steps, at most one participation in each."""
        squares = squared_sensitivity(self.steps, self.participations)
        return _gaussian_bounds(squares, k, self.noise_multiplier)


@dataclass(frozen=True, slots=True)
class Pate(Mechanism):
    """GNMax with noise `sigma` on the votes, charged independently of the votes (theory 3.9)."""

    sigma: Fraction
    queries: int

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return the bounds of all queries with Δ = √2: a changed vote moves two counts.

        All queries are one run: the same teachers answer them, so one sample serves all queries.
        """
        return _gaussian_bounds(2 * self.queries, k, self.sigma)


def _gaussian_bounds(
    count: int, distance: int, sigma: Fraction, scale: int = 1
) -> DivergenceBounds:
    """Return μ² = count·(distance/(scale·σ))² and ρ = μ²/2, computed in integers for speed."""
    numerator = count * (distance * sigma.denominator) ** 2
    denominator = (sigma.numerator * scale) ** 2
    return linear_bounds(Fraction(numerator, 2 * denominator), Fraction(numerator, denominator))


def _build_gaussian(reader: ParameterReader, count: int, rate: Fraction | None) -> Gaussian:
    sigma, sensitivity = reader.positive("sigma"), reader.positive("sensitivity", Fraction(1))
    return Gaussian(sigma, sensitivity, count=count, sampling_rate=rate)


def _build_discrete_gaussian(
    reader: ParameterReader, count: int, rate: Fraction | None
) -> DiscreteGaussian:
    sigma, sensitivity = reader.positive("sigma"), reader.positive("sensitivity", Fraction(1))
    return DiscreteGaussian(sigma, sensitivity, count=count, sampling_rate=rate)


def _build_dp_sgd(reader: ParameterReader, count: int, rate: Fraction | None) -> DpSgd:
    noise = reader.positive("noise-multiplier")
    if not reader.has("sampling-rate"):
        message = "`dp-sgd` needs `sampling-rate`; help: use 1 if every batch contains every unit"
        reader.report("M003", message)
    return DpSgd(noise, reader.positive_integer("steps"), count=count, sampling_rate=rate)


def _build_tree_aggregation(
    reader: ParameterReader, count: int, rate: Fraction | None
) -> TreeAggregation:
    noise, steps = reader.positive("noise-multiplier"), reader.positive_integer("steps")
    participations = reader.positive_integer("participations", default=1)
    return TreeAggregation(noise, steps, participations, count=count, sampling_rate=rate)


def _build_pate(reader: ParameterReader, count: int, rate: Fraction | None) -> Pate:
    sigma, queries = reader.positive("sigma"), reader.positive_integer("queries")
    return Pate(sigma, queries, count=count, sampling_rate=rate)


KINDS = (
    MechanismKind(
        name="gaussian",
        parameters=frozenset({"sigma", "sensitivity"}),
        build=_build_gaussian,
        example={"sigma": 10},
        restatable=frozenset({"sensitivity"}),
        noise_parameters={"sigma": 1},
        calibrated="sigma",
    ),
    MechanismKind(
        name="discrete-gaussian",
        parameters=frozenset({"sigma", "sensitivity"}),
        build=_build_discrete_gaussian,
        example={"sigma": 10},
        restatable=frozenset({"sensitivity"}),
        noise_parameters={"sigma": 1},
        calibrated="sigma",
    ),
    MechanismKind(
        name="dp-sgd",
        parameters=frozenset({"noise-multiplier", "steps"}),
        build=_build_dp_sgd,
        example={"noise-multiplier": 1, "sampling-rate": Fraction(1, 100), "steps": 100},
        restatable=frozenset({"noise-multiplier", "sampling-rate"}),
        noise_parameters={"noise-multiplier": 1},
        calibrated="noise-multiplier",
        needs_stated_relation=True,
    ),
    MechanismKind(
        name="tree-aggregation",
        parameters=frozenset({"noise-multiplier", "steps", "participations"}),
        build=_build_tree_aggregation,
        example={"noise-multiplier": 2, "steps": 8},
        restatable=frozenset({"noise-multiplier", "participations"}),
        noise_parameters={"noise-multiplier": 1},
        calibrated="noise-multiplier",
        needs_stated_relation=True,
    ),
    MechanismKind(
        name="pate",
        parameters=frozenset({"sigma", "queries"}),
        build=_build_pate,
        example={"sigma": 40, "queries": 100},
        noise_parameters={"sigma": 1},
        calibrated="sigma",
    ),
)
