"""What is known of one run of a mechanism → a loss, rounded up once (theory 1.4, 9).

`Bounds` is the common form of all families: an upper bound for every notion, exact where the
parameters make it rational. Each notion is valid on its own, given the δ-side. The smallest valid
bound wins: a Rényi divergence is at most ρα, and at most the pure ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.certificates import FLOAT_ERROR, QUANTA_PER_UNIT, Certificate, Notion
from dpolicy.privacy.conversion import pure_to_mu_squared, pure_to_renyi, pure_to_zcdp
from dpolicy.privacy.loss import INFINITE, Certificates, Loss, make_loss, unbounded_loss

#: An exact number, or a float evaluation that may be low by `FLOAT_ERROR`; `inf` is no bound.
Amount = Fraction | float

#: The Rényi divergence as a function of the order.
Curve = Callable[[float], float]

_INFLATION = float(1 + FLOAT_ERROR) * (1 + 2.0**-50)
_FLOAT_LIMIT = 2.0 * INFINITE


@dataclass(frozen=True, slots=True)
class DivergenceBounds:
    """Upper bounds for one run; without a `curve`, the Rényi divergence is bounded by ρα alone.

    `exact` gives the same curve where orders and values are rational.
    """

    pure: Amount = math.inf
    rho: Amount = math.inf
    mu_squared: Amount = math.inf
    delta: Fraction = Fraction(0)
    curve: Curve | None = None
    exact: Callable[[Fraction], Amount] | None = None


def linear_bounds(rho: Amount, mu_squared: Amount = math.inf) -> DivergenceBounds:
    """A divergence of ρα at every order."""
    return DivergenceBounds(rho=rho, mu_squared=mu_squared)


def pure_dp_bounds(
    epsilon: Amount, delta: Fraction = Fraction(0), curve: Curve | None = None
) -> DivergenceBounds:
    """All that ε-DP implies (theory 3.2); with δ, outside of the leak (3.10).

    A `curve` replaces that of randomized response where a family knows a smaller one.
    """
    e = float(epsilon)
    if math.isinf(e):
        return DivergenceBounds(delta=delta, curve=curve)
    if delta:  # the leaky pair is no μ-GDP for any μ
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
    """The smallest Rényi bound at any order above 1, before rounding."""
    rho, most, curve = float(bounds.rho), float(bounds.pure), bounds.curve
    if curve is None:
        return lambda order: min(rho * order, most)
    return lambda order: min(rho * order, most, curve(order))


@dataclass(frozen=True, slots=True, eq=False)
class RoundingPlan:
    """Certificates prepared for rounding: for each its notion, and its order in three forms."""

    certificates: Certificates
    steps: tuple[tuple[int, Certificate, int, int, float], ...]


_PURE, _RHO, _MU, _RENYI = range(4)
_STEPS = {Notion.PURE: _PURE, Notion.RHO: _RHO, Notion.MU: _MU, Notion.RENYI: _RENYI}
_plans: dict[int, RoundingPlan] = {}

#: A deployment has a handful of certificate tuples; a caller that makes many gets no help.
MAX_PLANS = 256


def rounding_plan(certificates: Certificates) -> RoundingPlan:
    """The plan of a tuple, found by identity: hashing fourteen fractions costs more than a loss."""
    found = _plans.get(id(certificates))
    if found is not None and found.certificates is certificates:
        return found
    if len(_plans) >= MAX_PLANS:
        _plans.clear()
    plan = RoundingPlan(certificates, tuple(map(_step, certificates)))
    _plans[id(certificates)] = plan  # the plan keeps the tuple, so its id is not reused
    return plan


def _step(certificate: Certificate) -> tuple[int, Certificate, int, int, float]:
    numerator, denominator = certificate.order.as_integer_ratio()
    order = numerator / denominator
    return _STEPS[certificate.notion], certificate, numerator, denominator, order


def round_to_loss(bounds: DivergenceBounds, count: int, plan: RoundingPlan) -> Loss:
    """The loss of `count` runs: multiplied exactly, then rounded up, once per certificate."""
    delta = bounds.delta * count if bounds.delta else bounds.delta
    if delta >= 1:
        return unbounded_loss(plan.certificates)
    ceiling = to_quanta(bounds.pure, count)
    curve, exact = bounds.curve, bounds.exact
    # ρα helps where ρ is exact; a curve of floats has taken its minimum with it already.
    straight = None if isinstance(bounds.rho, float) else bounds.rho * count * QUANTA_PER_UNIT
    amounts: list[int | None] = []
    for notion, certificate, numerator, denominator, order in plan.steps:
        if notion != _RENYI:
            amounts.append(_simple(bounds, count, notion))
            continue
        best = ceiling
        if straight is not None:
            found = -(-straight.numerator * numerator // (straight.denominator * denominator))
            best = found if best is None or found < best else best
        if curve:
            amount = exact(certificate.order) if exact else curve(order)
            upper = to_quanta(amount, count)
            best = upper if best is None or (upper is not None and upper < best) else best
        amounts.append(best)
    return make_loss(plan.certificates, amounts, delta)


def _simple(bounds: DivergenceBounds, count: int, notion: int) -> int | None:
    if notion == _PURE:
        return to_quanta(bounds.pure, count)
    return to_quanta(bounds.rho if notion == _RHO else bounds.mu_squared, count)


def to_quanta(amount: Amount, times: int) -> int | None:
    """amount × times in quanta, rounded up; None if infinite."""
    if isinstance(amount, float):
        # Inflated by more than the two products can lose; what is left out saturates anyway.
        value = amount * (times * float(QUANTA_PER_UNIT)) * _INFLATION
        return math.ceil(value) if value < _FLOAT_LIMIT else None
    numerator, denominator = amount.as_integer_ratio()
    return -(-numerator * times * QUANTA_PER_UNIT // denominator)
