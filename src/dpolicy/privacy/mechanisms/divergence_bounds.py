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
from dpolicy.privacy.reserves.ladder import RESERVES
from dpolicy.privacy.reserves.ladder_costs import LadderCosts, pure_ladder_costs

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
    `reserve_costs` computes costs beside the reserves, besides those that μ² and ε imply.
    """

    pure: Amount = math.inf
    rho: Amount = math.inf
    mu_squared: Amount = math.inf
    delta: Fraction = Fraction(0)
    curve: Curve | None = None
    exact: Callable[[Fraction], Amount] | None = None
    reserve_costs: Callable[[], LadderCosts] | None = None


def linear_bounds(rho: Amount, mu_squared: Amount = math.inf) -> DivergenceBounds:
    """Return bounds with a divergence of ρα at every order."""
    return DivergenceBounds(rho=rho, mu_squared=mu_squared)


def pure_dp_bounds(
    epsilon: Amount,
    delta: Fraction = Fraction(0),
    curve: Curve | None = None,
    reserve_costs: Callable[[], LadderCosts] | None = None,
) -> DivergenceBounds:
    """Return the bounds that ε-DP implies (theory 3.2); with δ, those of (ε, δ)-DP (3.10).

    `curve` replaces the curve of randomized response if the family has a smaller one, and
    `reserve_costs` are added if it has smaller costs beside reserves; they are not used with δ.
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
        reserve_costs=reserve_costs,
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
    float. `reserves` are positions of certificates with their places in the ladder of reserves.
    """

    certificates: Certificates
    steps: tuple[tuple[int, Certificate, int, int, float], ...]
    reserves: tuple[tuple[int, int], ...] = ()


_PURE, _RHO, _MU, _RENYI, _RESERVE = range(5)
_STEPS = {
    Notion.PURE: _PURE,
    Notion.RHO: _RHO,
    Notion.MU: _MU,
    Notion.RENYI: _RENYI,
    Notion.RESERVE: _RESERVE,
}
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
    reserves = tuple(
        (position, RESERVES.index(certificate))
        for position, certificate in enumerate(certificates)
        if certificate.notion is Notion.RESERVE
    )
    plan = RoundingPlan(certificates, tuple(map(_step, certificates)), reserves)
    _plans[id(certificates)] = plan  # the plan refers to the tuple, so its id is not reused
    return plan


def _step(certificate: Certificate) -> tuple[int, Certificate, int, int, float]:
    numerator, denominator = certificate.order.as_integer_ratio()
    order = numerator / denominator
    return _STEPS[certificate.notion], certificate, numerator, denominator, order


def round_to_loss(bounds: DivergenceBounds, count: int, plan: RoundingPlan) -> Loss:
    """Return the loss of `count` runs: multiplied exactly, then rounded up once per certificate.

    It computes in integers: a product of fractions reduces its result, which takes longer.
    """
    delta, rho = bounds.delta, bounds.rho
    if delta.numerator:
        delta = delta * count
        if delta.numerator >= delta.denominator:
            return unbounded_loss(plan.certificates)
    ceiling = to_quanta(bounds.pure, count)
    curve, exact = bounds.curve, bounds.exact
    # ρα can be smaller only if ρ is exact: a curve of floats already includes a minimum with it.
    has_slope = not isinstance(rho, float)
    rise, run = rho.as_integer_ratio() if has_slope else (0, 1)
    rise *= count * QUANTA_PER_UNIT
    scale = count * float(QUANTA_PER_UNIT)
    amounts: list[int | None] = []
    for notion, certificate, numerator, denominator, order in plan.steps:
        if notion != _RENYI:
            amounts.append(_amount_without_order(bounds, count, notion, ceiling))
            continue
        best = ceiling
        if has_slope:
            linear = -(-rise * numerator // (run * denominator))
            best = linear if best is None or linear < best else best
        if curve:
            amount = exact(certificate.order) if exact else curve(order)
            if type(amount) is float:  # `to_quanta`, without a call for each order
                value = amount * scale * _INFLATION
                upper = math.ceil(value) if value < _FLOAT_LIMIT else None
            else:
                upper = to_quanta(amount, count)
            best = upper if best is None or (upper is not None and upper < best) else best
        amounts.append(best)
    if plan.reserves:
        ladder = _ladder_amounts(bounds, count)
        for position, place in plan.reserves:
            amounts[position] = ladder[place]
    return make_loss(plan.certificates, amounts, delta)


def _amount_without_order(
    bounds: DivergenceBounds, count: int, notion: int, ceiling: int | None
) -> int | None:
    if notion in (_PURE, _RESERVE):  # `_ladder_amounts` replaces the amount of a reserve
        return ceiling
    return to_quanta(bounds.rho if notion == _RHO else bounds.mu_squared, count)


def _ladder_amounts(bounds: DivergenceBounds, count: int) -> list[int | None]:
    """Return the amounts beside the reserves of the ladder, ascending (theory/reserves, 2 and 3).

    Each is the smallest of μ², the closed form of the pure ε, the cost of the family, and the
    amount of the reserve before: amounts fall along the ladder also after rounding.
    """
    pure, best = float(bounds.pure), to_quanta(bounds.mu_squared, count)
    candidates: list[LadderCosts] = []
    if pure < math.inf:
        candidates.append(pure_ladder_costs(pure * _INFLATION))
    if bounds.reserve_costs:
        candidates.append(bounds.reserve_costs())
    amounts: list[int | None] = []
    for place in range(len(RESERVES)):
        for costs in candidates:
            amount = to_quanta(costs[place], count)
            best = amount if best is None or (amount is not None and amount < best) else best
        amounts.append(best)
    return amounts


def to_quanta(amount: Amount, count: int) -> int | None:
    """Return amount × count in quanta, rounded up; None if it is infinite or saturates."""
    if isinstance(amount, float):
        # The inflation exceeds the rounding errors of both products.
        value = amount * (count * float(QUANTA_PER_UNIT)) * _INFLATION
        return math.ceil(value) if value < _FLOAT_LIMIT else None
    numerator, denominator = amount.as_integer_ratio()
    return -(-numerator * count * QUANTA_PER_UNIT // denominator)
