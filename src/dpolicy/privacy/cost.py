"""A mechanism and a group size → its loss in every certificate (theory 3, 4.1, 4.2).

The families give bounds for one run; here they are sampled (3.6, 3.7), combined with what a pure ε
implies, multiplied by the number of runs, and rounded once. Poisson amplification holds for
add-remove only; under any other relation a sampled mechanism costs what it costs unsampled.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from dpolicy.privacy.loss import Certificates, Loss
from dpolicy.privacy.mechanisms.declared import (
    DeclaredCurve,
    DeclaredGdp,
    DeclaredPure,
    DeclaredZcdp,
    approximate_dp_bounds,
    declared_curve,
    declared_gdp,
    declared_pure,
    declared_zcdp,
)
from dpolicy.privacy.mechanisms.divergence_bounds import (
    DivergenceBounds,
    RoundingPlan,
    pure_dp_bounds,
    round_to_loss,
    rounding_plan,
    smallest_curve,
)
from dpolicy.privacy.mechanisms.gaussian import (
    DiscreteGaussian,
    DpSgd,
    Gaussian,
    Pate,
    TreeAggregation,
    discrete_gaussian,
    dp_sgd_step,
    gaussian,
    pate,
    tree_aggregation,
)
from dpolicy.privacy.mechanisms.group_chain import group_divergence
from dpolicy.privacy.mechanisms.laplace import DiscreteLaplace, Laplace, discrete_laplace, laplace
from dpolicy.privacy.mechanisms.randomized_response import (
    KaryResponse,
    RandomizedResponse,
    kary_response,
    randomized_response,
)
from dpolicy.privacy.mechanisms.registry import Mechanism
from dpolicy.privacy.mechanisms.selection import (
    ExponentialMechanism,
    ReportNoisyMax,
    SparseVector,
    exponential,
    report_noisy_max,
    sparse_vector,
)
from dpolicy.privacy.mechanisms.subsampled import MAX_ORDER, SampledMoments, sampled_epsilon
from dpolicy.privacy.units.privacy_units import NeighbouringRelation


def cost(
    mechanism: Mechanism, k: int, relation: NeighbouringRelation, certificates: Certificates
) -> Loss:
    """The loss of all runs for a group of k units of the kind it was stated for."""
    return _cost(mechanism, k, relation, rounding_plan(certificates))


@lru_cache(maxsize=65_536)
def _cost(mechanism: Mechanism, k: int, relation: NeighbouringRelation, plan: RoundingPlan) -> Loss:
    return round_to_loss(single_run_bounds(mechanism, k, relation), run_count(mechanism), plan)


def run_count(mechanism: Mechanism) -> int:
    """How often the family's single run is repeated."""
    match mechanism:
        case DpSgd(steps=steps, count=count):
            return steps * count
    return mechanism.count


def is_sampled(mechanism: Mechanism) -> bool:
    """Whether it runs on a Poisson sample; a rate that no float tells from 1 is none."""
    rate = mechanism.sampling_rate
    return rate is not None and float(rate) < 1


def without_sampling(mechanism: Mechanism) -> Mechanism:
    """The same mechanism on all of the data."""
    return replace(mechanism, sampling_rate=Fraction(1)) if is_sampled(mechanism) else mechanism


def single_run_bounds(
    mechanism: Mechanism, k: int, relation: NeighbouringRelation
) -> DivergenceBounds:
    """The bounds of a single run."""
    rate = mechanism.sampling_rate
    if rate is None or not is_sampled(mechanism) or relation is not NeighbouringRelation.ADD_REMOVE:
        return _unsampled(mechanism, k)
    if isinstance(mechanism, DeclaredPure) and mechanism.delta:
        epsilon = sampled_epsilon(float(mechanism.epsilon), float(rate))
        return approximate_dp_bounds(epsilon, rate * mechanism.delta, k)
    return _sampled(mechanism, k, rate)


def _unsampled(mechanism: Mechanism, k: int) -> DivergenceBounds:
    match mechanism:
        case Gaussian():
            return gaussian(mechanism, k)
        case DiscreteGaussian():
            return discrete_gaussian(mechanism, k)
        case DpSgd():
            return dp_sgd_step(mechanism, k)
        case TreeAggregation():
            return tree_aggregation(mechanism, k)
        case Pate():
            return pate(mechanism, k)
        case Laplace():
            return laplace(mechanism, k)
        case DiscreteLaplace():
            return discrete_laplace(mechanism, k)
        case RandomizedResponse():
            return randomized_response(mechanism, k)
        case KaryResponse():
            return kary_response(mechanism, k)
        case _:
            return _unsampled_abstract(mechanism, k)


def _unsampled_abstract(
    mechanism: ExponentialMechanism
    | ReportNoisyMax
    | SparseVector
    | DeclaredPure
    | DeclaredZcdp
    | DeclaredGdp
    | DeclaredCurve,
    k: int,
) -> DivergenceBounds:
    match mechanism:
        case ExponentialMechanism():
            return exponential(mechanism, k)
        case ReportNoisyMax():
            return report_noisy_max(mechanism, k)
        case SparseVector():
            return sparse_vector(mechanism, k)
        case DeclaredPure():
            return declared_pure(mechanism, k)
        case DeclaredZcdp():
            return declared_zcdp(mechanism, k)
        case DeclaredGdp():
            return declared_gdp(mechanism, k)
        case DeclaredCurve():
            return declared_curve(mechanism, k)


def _sampled(mechanism: Mechanism, k: int, rate: Fraction) -> DivergenceBounds:
    """The least of: the sampled curve through the chain, what its pure ε implies, unsampled."""
    one, group = _unsampled(mechanism, 1), _unsampled(mechanism, k)
    curves = [smallest_curve(group)]
    least_pure = pure_dp_bounds(k * sampled_epsilon(float(one.pure), float(rate)))
    if least_pure.curve:
        curves.append(least_pure.curve)
    sampled = _sampled_curve(_one_run(mechanism), rate)
    # Unsampled Gaussians are straight, so above MAX_ORDER the terms of a chain need no curve.
    straight = (math.inf, 0.0) if one.curve else (float(MAX_ORDER), float(one.rho))
    curves.append(lambda order: group_divergence(sampled, k, order, straight))
    return DivergenceBounds(
        least_pure.pure,
        min(group.rho, least_pure.rho),
        min(group.mu_squared, least_pure.mu_squared),
        curve=lambda order: min(curve(order) for curve in curves),
    )


def _one_run(mechanism: Mechanism) -> Mechanism:
    """What the sampled curve depends on besides the rate, so that it is computed once."""
    if isinstance(mechanism, DpSgd):
        return Gaussian(mechanism.noise_multiplier)
    return replace(mechanism, count=1, sampling_rate=None)


@lru_cache(maxsize=1024)
def _sampled_curve(one_run: Mechanism, rate: Fraction) -> SampledMoments:
    factor = 1 if isinstance(one_run, Gaussian | Laplace) else 3
    return SampledMoments(smallest_curve(_unsampled(one_run, 1)), float(rate), factor)
