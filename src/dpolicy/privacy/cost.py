"""Cost of a mechanism for a group of units, in every certificate (theory 3, 4.1, 4.2).

A mechanism gives bounds for one run on all data. This module applies Poisson sampling (3.6, 3.7),
combines the result with the bounds that a pure ε implies, multiplies by the number of runs, and
rounds up once. A sampled mechanism costs as much as without sampling under a relation for which it
has no amplification; statements under add-remove imply others under change (`group_privacy.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

from dpolicy.privacy.loss import Certificates, Loss, unbounded_loss
from dpolicy.privacy.mechanisms.cost_rules import CostRules
from dpolicy.privacy.mechanisms.divergence_bounds import (
    Curve,
    DivergenceBounds,
    RoundingPlan,
    pure_dp_bounds,
    round_to_loss,
    rounding_plan,
    smallest_curve,
)
from dpolicy.privacy.mechanisms.group_chain import group_divergence
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.mechanisms.sampling.gaussian_mixture import mixture_moment
from dpolicy.privacy.mechanisms.sampling.subsampled import (
    MAX_ORDER,
    SampledMoments,
    epsilon_on_sample,
)
from dpolicy.privacy.reserves.ladder_costs import NO_COSTS, LadderCosts, sampled_gaussian_costs
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

#: Largest number of group sizes whose losses are kept for one mechanism.
MAX_SIZES = 32


def cost(
    mechanism: Mechanism,
    k: int,
    relation: NeighbouringRelation,
    certificates: Certificates,
    rules: CostRules = CostRules.FIRST,
) -> Loss:
    """Return the loss of all runs for a group of `k` units of the stated kind."""
    return cost_by_size(mechanism, (k,), relation, certificates, rules)[0]


def cost_by_size(
    mechanism: Mechanism,
    sizes: Iterable[int | None],
    relation: NeighbouringRelation,
    certificates: Certificates,
    rules: CostRules = CostRules.FIRST,
) -> list[Loss]:
    """Return the loss of all runs for a group of each size; without any bound if it is None."""
    plan = rounding_plan(certificates)
    # One lookup for all sizes: the hash of a mechanism takes as long as a few certificates.
    losses = _losses_by_size(mechanism, relation, plan, rules)
    return [_cost(mechanism, k, relation, plan, rules, losses) for k in sizes]


@lru_cache(maxsize=8_192)
def _losses_by_size(
    mechanism: Mechanism, relation: NeighbouringRelation, plan: RoundingPlan, rules: CostRules
) -> dict[int, Loss]:
    """Return the losses that are known by group size: an empty dict, which `_cost` fills."""
    return {}


def _cost(
    mechanism: Mechanism,
    k: int | None,
    relation: NeighbouringRelation,
    plan: RoundingPlan,
    rules: CostRules,
    losses: dict[int, Loss],
) -> Loss:
    if k is None:
        return unbounded_loss(plan.certificates)
    loss = losses.get(k)
    if loss is None:
        if len(losses) >= MAX_SIZES:
            losses.clear()
        bounds = single_run_bounds(mechanism, k, relation, rules)
        loss = losses[k] = round_to_loss(bounds, mechanism.run_count, plan)
    return loss


def single_run_bounds(
    mechanism: Mechanism,
    k: int,
    relation: NeighbouringRelation,
    rules: CostRules = CostRules.FIRST,
) -> DivergenceBounds:
    """Return the bounds of one run, of which the mechanism composes `run_count`."""
    rate = mechanism.sampling_rate
    if rate is None or not mechanism.is_sampled or relation not in mechanism.sampling_relations:
        return _bounds_on_all_data(mechanism, k, rules)
    amplified = mechanism.amplification_bounds(k, rate)
    return _bounds_on_sample(mechanism, k, rate, rules) if amplified is None else amplified


def _bounds_on_all_data(mechanism: Mechanism, k: int, rules: CostRules) -> DivergenceBounds:
    if rules >= CostRules.SECOND:
        return mechanism.tighter_bounds(k)
    return mechanism.bounds_without_sampling(k)


def _bounds_on_sample(
    mechanism: Mechanism, k: int, rate: Fraction, rules: CostRules
) -> DivergenceBounds:
    """Return the minimum of all known bounds.

    They are the sampled curve through the chain bound, the bounds that the sampled pure ε implies,
    the bounds without sampling, and exact values of Gaussians between integer orders.
    """
    one, group = (_bounds_on_all_data(mechanism, size, rules) for size in (1, k))
    curves = [smallest_curve(group)]
    sampled_pure = pure_dp_bounds(k * epsilon_on_sample(float(one.pure), float(rate)))
    if sampled_pure.curve:
        curves.append(sampled_pure.curve)
    sampled = _curve_on_sample(mechanism.single_run(), rate, rules)
    # Unsampled Gaussians are straight, so above MAX_ORDER the terms of a chain need no curve.
    straight = (math.inf, 0.0) if one.curve else (float(MAX_ORDER), float(one.rho))
    curves.append(lambda order: group_divergence(sampled, k, order, straight))
    ratio = mechanism.gaussian_ratio
    if ratio is not None and k == 1 and rules >= CostRules.SECOND:
        curves.append(_fractional_orders(float(rate), float(ratio)))
    return DivergenceBounds(
        sampled_pure.pure,
        min(group.rho, sampled_pure.rho),
        min(group.mu_squared, sampled_pure.mu_squared),
        curve=lambda order: min(curve(order) for curve in curves),
        reserve_costs=lambda: _reserve_costs_on_sample(one, group, k, rate),
    )


def _fractional_orders(rate: float, ratio: float) -> Curve:
    """Return the exact curve of a sampled Gaussian between integers; at integers no bound."""

    def curve(order: float) -> float:
        if order.is_integer():
            return math.inf
        return mixture_moment(order, rate, ratio, False) / (order - 1)

    return curve


def _reserve_costs_on_sample(
    one: DivergenceBounds, group: DivergenceBounds, k: int, rate: Fraction
) -> LadderCosts:
    """Return the smaller of the costs without sampling and those of sampled Gaussian noise.

    Amplification applies to every mechanism that is μ-GDP; the other kinds are pure, and the
    sampled pure ε bounds them.
    """
    costs = [group.reserve_costs()] if group.reserve_costs else []
    if one.curve is None and not math.isinf(float(one.mu_squared)):
        mu = math.nextafter(math.sqrt(one.mu_squared), math.inf)
        costs.append(sampled_gaussian_costs(mu, math.nextafter(float(rate), 1.0), k))
    return tuple(min(column) for column in zip(NO_COSTS, *costs, strict=True))


@lru_cache(maxsize=1024)
def _curve_on_sample(single_run: Mechanism, rate: Fraction, rules: CostRules) -> SampledMoments:
    curve = smallest_curve(_bounds_on_all_data(single_run, 1, rules))
    factor = single_run.sampling_factor
    if rules >= CostRules.SECOND and single_run.tighter_sampling_factor is not None:
        factor = single_run.tighter_sampling_factor
    return SampledMoments(curve, float(rate), factor)
