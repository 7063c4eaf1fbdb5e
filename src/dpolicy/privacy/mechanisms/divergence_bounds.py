"""Divergence bounds of one run, and their rounding to a loss (theory 1.4, 9).

`DivergenceBounds` is the common form of all families: an upper bound for every notion, exact where
the parameters are rational. Each bound is valid without the others, given the δ-side. The smallest
valid bound is used: a Rényi divergence is at most ρα, and at most the pure ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.certificates import FLOAT_ERROR, QUANTA_PER_UNIT, Certificate, Notion
from dpolicy.privacy.conversion import pure_to_mu_squared, pure_to_renyi, pure_to_zcdp
from dpolicy.privacy.loss import INFINITE, Certificates, Loss, make_loss, unbounded_loss

#: An exact number, or a float that may be low by `FLOAT_ERROR`. `inf` means that there is no bound.
Amount = Fraction | float

#: Rényi divergence as a function of the order.
Curve = Callable[[float], float]

_INFLATION = float(1 + FLOAT_ERROR) * (1 + 2.0**-50)
_FLOAT_LIMIT = 2.0 * INFINITE


@dataclass(frozen=True, slots=True)
class DivergenceBounds:
    """Upper bounds for one run. Without a `curve`, the Rényi divergence is bounded by ρα and ε.

    `exact` is the same curve in rational arithmetic, for mechanisms with rational values.
    """

    pure: Amount = math.inf
    rho: Amount = math.inf
    mu_squared: Amount = math.inf
    delta: Fraction = Fraction(0)
    curve: Curve | None = None
    exact: Callable[[Fraction], Amount] | None = None


def linear_bounds(rho: Amount, mu_squared: Amount = math.inf) -> DivergenceBounds:
    """Return bounds with a divergence of ρα at every order."""
    return DivergenceBounds(rho=rho, mu_squared=mu_squared)


def pure_dp_bounds(
    epsilon: Amount, delta: Fraction = Fraction(0), curve: Curve | None = None
) -> DivergenceBounds:
    """Return the bounds that ε-DP implies (theory 3.2); with δ, those of (ε, δ)-DP (3.10).

    `curve` replaces the curve of randomized response if the family has a smaller one; it is not
    used with δ.
    """
    e = float(epsilon)
    if math.isinf(e):
        return DivergenceBounds(delta=delta, curve=curve)
    if delta:  # an (ε, δ)-DP mechanism is not μ-GDP for any μ
        return DivergenceBounds(
            epsilon, pure_to_zcdp(e), math.inf, delta, lambda a: pure_to_renyi(e, a)
        )
    return DivergenceBounds(
        epsilon,
        pure_to_zcdp(e),
        pure_to_mu_squared(e),
        curve=curve or (lambda a: pure_to_renyi(e, a)),
    )


def smallest_curve(bounds: DivergenceBounds) -> Curve:
    """Return the smallest Rényi bound as a function of any order above 1, before rounding."""
    rho, pure, curve = float(bounds.rho), float(bounds.pure), bounds.curve
    if curve is None:
        return lambda order: min(rho * order, pure)
    return lambda order: min(rho * order, pure, curve(order))


@dataclass(frozen=True, slots=True, eq=False)
class RoundingPlan:
    """Certificates prepared for rounding.

    A step has the notion number, the certificate, and its order as numerator, denominator and
    float.
    """

    certificates: Certificates
    steps: tuple[tuple[int, Certificate, int, int, float], ...]


_PURE, _RHO, _MU, _RENYI = range(4)
_STEPS = {Notion.PURE: _PURE, Notion.RHO: _RHO, Notion.MU: _MU, Notion.RENYI: _RENYI}
_plans: dict[int, RoundingPlan] = {}

#: Largest number of cached plans. A deployment has a handful of certificate tuples.
MAX_PLANS = 256


def rounding_plan(certificates: Certificates) -> RoundingPlan:
    """Return the plan of a tuple, cached by identity.

    To hash fourteen fractions takes longer than to compute a loss.
    """
    cached = _plans.get(id(certificates))
    if cached is not None and cached.certificates is certificates:
        return cached
    if len(_plans) >= MAX_PLANS:
        _plans.clear()
    plan = RoundingPlan(certificates, tuple(map(_step, certificates)))
    _plans[id(certificates)] = plan  # the plan refers to the tuple, so its id is not reused
    return plan


def _step(certificate: Certificate) -> tuple[int, Certificate, int, int, float]:
    numerator, denominator = certificate.order.as_integer_ratio()
    order = numerator / denominator
    return _STEPS[certificate.notion], certificate, numerator, denominator, order


def round_to_loss(bounds: DivergenceBounds, count: int, plan: RoundingPlan) -> Loss:
    """Return the loss of `count` runs: multiplied exactly, then rounded up once per certificate."""
    delta = bounds.delta * count if bounds.delta else bounds.delta
    if delta >= 1:
        return unbounded_loss(plan.certificates)
    ceiling = to_quanta(bounds.pure, count)
    curve, exact = bounds.curve, bounds.exact
    # ρα can be smaller only if ρ is exact: a curve of floats already includes a minimum with it.
    slope = None if isinstance(bounds.rho, float) else bounds.rho * count * QUANTA_PER_UNIT
    amounts: list[int | None] = []
    for notion, certificate, numerator, denominator, order in plan.steps:
        if notion != _RENYI:
            amounts.append(_amount_without_order(bounds, count, notion))
            continue
        best = ceiling
        if slope is not None:
            linear = -(-slope.numerator * numerator // (slope.denominator * denominator))
            best = linear if best is None or linear < best else best
        if curve:
            amount = exact(certificate.order) if exact else curve(order)
            upper = to_quanta(amount, count)
            best = upper if best is None or (upper is not None and upper < best) else best
        amounts.append(best)
    return make_loss(plan.certificates, amounts, delta)


def _amount_without_order(bounds: DivergenceBounds, count: int, notion: int) -> int | None:
    if notion == _PURE:
        return to_quanta(bounds.pure, count)
    return to_quanta(bounds.rho if notion == _RHO else bounds.mu_squared, count)


def to_quanta(amount: Amount, count: int) -> int | None:
    """Return amount × count in quanta, rounded up; None if it is infinite or saturates."""
    if isinstance(amount, float):
        # The inflation exceeds the rounding errors of both products.
        value = amount * (count * float(QUANTA_PER_UNIT)) * _INFLATION
        return math.ceil(value) if value < _FLOAT_LIMIT else None
    numerator, denominator = amount.as_integer_ratio()
    return -(-numerator * count * QUANTA_PER_UNIT // denominator)
