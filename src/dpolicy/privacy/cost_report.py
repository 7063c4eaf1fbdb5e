"""A mechanism → its cost for every unit in plain numbers, as people and other tools read them.

The ledger counts in quanta of 10⁻¹². A report does not round to quanta: it gives the same upper
bounds to the last digit of a float, rounded up. ε at δ is the least that any notion gives, over a
dense grid: a statement about this one mechanism, not about an adaptive sequence (theory 2.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.certificates import inflate
from dpolicy.privacy.conversion import (
    gaussian_to_epsilon,
    renyi_to_epsilon,
    zcdp_to_epsilon,
)
from dpolicy.privacy.cost import run_count, single_run_bounds
from dpolicy.privacy.mechanisms.divergence_bounds import Amount, DivergenceBounds, smallest_curve
from dpolicy.privacy.mechanisms.registry import Mechanism
from dpolicy.privacy.thresholds import STATIC_ORDERS
from dpolicy.privacy.units.group_privacy import GroupContext, statements_for, steps_from
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

#: The orders that ε is read off at, besides those that are asked for.
DENSE_ORDERS = (*STATIC_ORDERS, Fraction(512), Fraction(1024), Fraction(4096), Fraction(10**5))


@dataclass(frozen=True, slots=True)
class CostReport:
    """Upper bounds of one mechanism's loss for one unit; None where there is none."""

    pure: Fraction | None
    rho: Fraction | None
    mu_squared: Fraction | None
    renyi: tuple[tuple[Fraction, Fraction | None], ...]
    delta: Fraction

    @property
    def says_something(self) -> bool:
        """Whether any notion is bounded."""
        amounts = (self.pure, self.rho, self.mu_squared, *(value for _, value in self.renyi))
        return any(amount is not None for amount in amounts)

    @property
    def mu(self) -> float | None:
        """μ of Gaussian DP, rounded up."""
        return None if self.mu_squared is None else sqrt_rounded_up(self.mu_squared)

    def epsilon(self, delta: Fraction) -> float | None:
        """The least ε at δ, rounded up; None if the stated leaks alone exceed δ."""
        rest = delta - self.delta
        if rest < 0:
            return None
        found = [math.inf if self.pure is None else round_up_to_printed_float(self.pure)]
        if rest:
            if self.rho is not None:
                found.append(zcdp_to_epsilon(self.rho, rest))
            if self.mu is not None:
                found.append(gaussian_to_epsilon(self.mu, rest))
            found += [renyi_to_epsilon(o, v, rest) for o, v in self.renyi if v is not None]
        least = max(min(found), 0.0)
        return None if math.isinf(least) else least


def round_up_to_printed_float(value: Fraction) -> float:
    """The float whose printed decimal is the nearest that is not below: 0.3 stays 0.3."""
    near = float(value)
    while Fraction(repr(near)) < value:
        near = math.nextafter(near, math.inf)
    return near


def sqrt_rounded_up(value: Fraction) -> float:
    """The square root, rounded up."""
    near = math.sqrt(value)
    while Fraction(repr(near)) ** 2 < value:
        near = math.nextafter(near, math.inf)
    return near


def report_costs(
    mechanism: Mechanism,
    position: int,
    also: Mapping[str, Mechanism],
    relation: NeighbouringRelation,
    setting: GroupContext,
    orders: Sequence[Fraction],
) -> list[CostReport]:
    """The costs for every unit of the setting, of a mechanism stated for the unit at a position."""
    asked = tuple(sorted({*orders, *DENSE_ORDERS}))
    rows = [
        [
            None if k is None else _costs(said, k, relation, asked)
            for k in steps_from(under, place, relation)
        ]
        for said, place, under in statements_for(mechanism, position, also, setting)
    ]
    return [_least([row[unit] for row in rows], asked) for unit in range(len(setting.units))]


def _costs(
    mechanism: Mechanism, k: int, relation: NeighbouringRelation, orders: Sequence[Fraction]
) -> CostReport | None:
    bounds = single_run_bounds(mechanism, k, relation)
    count = run_count(mechanism)
    if bounds.delta * count >= 1:
        return None
    return CostReport(
        _times(bounds.pure, count),
        _times(bounds.rho, count),
        _times(bounds.mu_squared, count),
        tuple((order, _times(_divergence(bounds, order), count)) for order in orders),
        bounds.delta * count,
    )


def _divergence(bounds: DivergenceBounds, order: Fraction) -> Amount:
    """The Rényi divergence of one run: exact where the parameters make it so."""
    found: list[Amount] = [smallest_curve(bounds)(float(order))]
    if isinstance(bounds.rho, Fraction):
        found.append(bounds.rho * order)
    if isinstance(bounds.pure, Fraction):
        found.append(bounds.pure)
    if bounds.exact is not None:
        found.append(bounds.exact(order))
    finite = [value for value in (_upper(amount) for amount in found) if value is not None]
    return min(finite, default=math.inf)


def _times(amount: Amount, count: int) -> Fraction | None:
    upper = _upper(amount)
    return None if upper is None else upper * count


def _upper(amount: Amount) -> Fraction | None:
    if isinstance(amount, Fraction | int):
        return Fraction(amount)
    return None if math.isinf(amount) else inflate(amount)


def _least(reports: Sequence[CostReport | None], orders: Sequence[Fraction]) -> CostReport:
    """Certificate by certificate the least bound, among those with the smallest δ-side."""
    known = [costs for costs in reports if costs is not None and costs.says_something]
    delta = min((costs.delta for costs in known), default=Fraction(0))
    best = [costs for costs in known if costs.delta == delta]
    return CostReport(
        _smallest([costs.pure for costs in best]),
        _smallest([costs.rho for costs in best]),
        _smallest([costs.mu_squared for costs in best]),
        tuple(
            (order, _smallest([costs.renyi[position][1] for costs in best]))
            for position, order in enumerate(orders)
        ),
        delta,
    )


def _smallest(amounts: Sequence[Fraction | None]) -> Fraction | None:
    return min((amount for amount in amounts if amount is not None), default=None)
