"""Cost of a mechanism for a group of units, in every certificate (theory 3, 4.1, 4.2).

A mechanism gives bounds for one run on all data. This module applies Poisson sampling (3.6, 3.7),
combines the result with the bounds that a pure ε implies, multiplies by the number of runs, and
rounds up once. Poisson amplification holds for add-remove only; under any other relation a sampled
mechanism costs as much as without sampling.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from dpolicy.privacy.loss import Certificates, Loss
from dpolicy.privacy.mechanisms.divergence_bounds import (
    DivergenceBounds,
    RoundingPlan,
    pure_dp_bounds,
    round_to_loss,
    rounding_plan,
    smallest_curve,
)
from dpolicy.privacy.mechanisms.group_chain import group_divergence
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.mechanisms.subsampled import MAX_ORDER, SampledMoments, epsilon_on_sample
from dpolicy.privacy.units.privacy_units import NeighbouringRelation


def cost(
    mechanism: Mechanism, k: int, relation: NeighbouringRelation, certificates: Certificates
) -> Loss:
    """Return the loss of all runs for a group of `k` units of the stated kind."""
    return _cost(mechanism, k, relation, rounding_plan(certificates))


@lru_cache(maxsize=65_536)
def _cost(mechanism: Mechanism, k: int, relation: NeighbouringRelation, plan: RoundingPlan) -> Loss:
    return round_to_loss(single_run_bounds(mechanism, k, relation), mechanism.run_count, plan)


def single_run_bounds(
    mechanism: Mechanism, k: int, relation: NeighbouringRelation
) -> DivergenceBounds:
    """Return the bounds of one run, of which the mechanism composes `run_count`."""
    rate = mechanism.sampling_rate
    if rate is None or not mechanism.is_sampled or relation is not NeighbouringRelation.ADD_REMOVE:
        return mechanism.bounds_without_sampling(k)
    amplified = mechanism.amplification_bounds(k, rate)
    return _bounds_on_sample(mechanism, k, rate) if amplified is None else amplified


def _bounds_on_sample(mechanism: Mechanism, k: int, rate: Fraction) -> DivergenceBounds:
    """Return the minimum of three bounds.

    They are the sampled curve through the chain bound, the bounds that the sampled pure ε implies,
    and the bounds without sampling.
    """
    one, group = mechanism.bounds_without_sampling(1), mechanism.bounds_without_sampling(k)
    curves = [smallest_curve(group)]
    sampled_pure = pure_dp_bounds(k * epsilon_on_sample(float(one.pure), float(rate)))
    if sampled_pure.curve:
        curves.append(sampled_pure.curve)
    sampled = _curve_on_sample(mechanism.single_run(), rate)
    # Unsampled Gaussians are straight, so above MAX_ORDER the terms of a chain need no curve.
    straight = (math.inf, 0.0) if one.curve else (float(MAX_ORDER), float(one.rho))
    curves.append(lambda order: group_divergence(sampled, k, order, straight))
    return DivergenceBounds(
        sampled_pure.pure,
        min(group.rho, sampled_pure.rho),
        min(group.mu_squared, sampled_pure.mu_squared),
        curve=lambda order: min(curve(order) for curve in curves),
    )


@lru_cache(maxsize=1024)
def _curve_on_sample(single_run: Mechanism, rate: Fraction) -> SampledMoments:
    curve = smallest_curve(single_run.bounds_without_sampling(1))
    return SampledMoments(curve, float(rate), single_run.sampling_factor)
