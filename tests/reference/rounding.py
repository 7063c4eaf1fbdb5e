"""Costs in fractions: the plain computation that `divergence_bounds` and `cost` do in integers."""

from __future__ import annotations

import math
from fractions import Fraction

from dpolicy.privacy.certificates import FLOAT_ERROR, QUANTA_PER_UNIT, Certificate, Notion
from dpolicy.privacy.cost import single_run_bounds
from dpolicy.privacy.loss import INFINITE, Certificates, Loss, make_loss, unbounded_loss
from dpolicy.privacy.mechanisms.divergence_bounds import Amount, DivergenceBounds
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.reserves.ladder import RESERVES
from dpolicy.privacy.reserves.pure_cost import pure_reserve_cost
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

_INFLATION = float(1 + FLOAT_ERROR) * (1 + 2.0**-50)
_FLOAT_LIMIT = 2.0 * INFINITE


def cost(
    mechanism: Mechanism, k: int, relation: NeighbouringRelation, certificates: Certificates
) -> Loss:
    """Return the loss of all runs for a group of `k` units, without any cache."""
    bounds = single_run_bounds(mechanism, k, relation)
    return round_to_loss(bounds, mechanism.run_count, certificates)


def round_to_loss(bounds: DivergenceBounds, count: int, certificates: Certificates) -> Loss:
    """Return the loss of `count` runs: multiplied exactly, then rounded up once per certificate."""
    delta = bounds.delta * count
    if delta >= 1:
        return unbounded_loss(certificates)
    amounts = [_amount(bounds, count, certificate) for certificate in certificates]
    return make_loss(certificates, amounts, delta)


def _amount(bounds: DivergenceBounds, count: int, certificate: Certificate) -> int | None:
    match certificate.notion:
        case Notion.PURE:
            return to_quanta(bounds.pure, count)
        case Notion.RHO:
            return to_quanta(bounds.rho, count)
        case Notion.MU:
            return to_quanta(bounds.mu_squared, count)
        case Notion.RESERVE:
            return _reserve_amount(bounds, count, certificate)
    order = certificate.order
    candidates = [to_quanta(bounds.pure, count)]
    if isinstance(bounds.rho, Fraction | int):
        candidates.append(math.ceil(bounds.rho * order * count * QUANTA_PER_UNIT))
    if bounds.curve:
        divergence = bounds.exact(order) if bounds.exact else bounds.curve(float(order))
        candidates.append(to_quanta(divergence, count))
    return min((amount for amount in candidates if amount is not None), default=None)


def _reserve_amount(bounds: DivergenceBounds, count: int, certificate: Certificate) -> int | None:
    """Return the smallest amount of this reserve and of all smaller ones, μ² included."""
    candidates = [to_quanta(bounds.mu_squared, count)]
    stated = bounds.reserve_costs() if bounds.reserve_costs else (math.inf,) * len(RESERVES)
    for smaller, cost in zip(RESERVES, stated, strict=True):
        if smaller <= certificate:
            candidates.append(to_quanta(cost, count))
            if not math.isinf(float(bounds.pure)):
                epsilon = float(bounds.pure) * _INFLATION
                pure_cost = pure_reserve_cost(epsilon, float(smaller.order))
                candidates.append(to_quanta(pure_cost, count))
    return min((amount for amount in candidates if amount is not None), default=None)


def to_quanta(amount: Amount, count: int) -> int | None:
    """Return amount × count in quanta, rounded up; None if it is infinite or saturates."""
    if isinstance(amount, float):
        value = amount * (count * float(QUANTA_PER_UNIT)) * _INFLATION
        return math.ceil(value) if value < _FLOAT_LIMIT else None
    return math.ceil(amount * count * QUANTA_PER_UNIT)
