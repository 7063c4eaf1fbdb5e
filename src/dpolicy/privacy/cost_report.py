"""Cost report: the cost of a mechanism, or of several together, in plain numbers.

The ledger counts in quanta of 10⁻¹². A report does not round to quanta: it has the same upper
bounds as floats, rounded up. ε at δ is the minimum over all notions and a dense grid of orders. It
is a statement about this one mechanism, not about an adaptive sequence (theory 2.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.certificates import (
    MU_SQUARED,
    PURE,
    QUANTA_PER_UNIT,
    RHO,
    Notion,
    inflate,
    renyi,
)
from dpolicy.privacy.conversion import (
    gaussian_to_epsilon,
    renyi_to_epsilon,
    zcdp_to_epsilon,
)
from dpolicy.privacy.cost import single_run_bounds
from dpolicy.privacy.loss import Certificates, Loss
from dpolicy.privacy.mechanisms.divergence_bounds import Amount, DivergenceBounds, smallest_curve
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.thresholds import STATIC_ORDERS
from dpolicy.privacy.units.group_privacy import (
    GroupContext,
    Statement,
    statements_for,
    steps_from,
)
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

#: Orders at which ε is computed, besides the requested orders.
DENSE_ORDERS = (*STATIC_ORDERS, Fraction(512), Fraction(1024), Fraction(4096), Fraction(10**5))

#: δ at which ε is computed if neither the question nor the policy states one.
DEFAULT_DELTA = Fraction("1e-7")


@dataclass(frozen=True, slots=True)
class CostReport:
    """Upper bounds of a loss for one unit; None where there is no bound."""

    pure: Fraction | None
    rho: Fraction | None
    mu_squared: Fraction | None
    renyi: tuple[tuple[Fraction, Fraction | None], ...]
    delta: Fraction

    @property
    def is_bounded(self) -> bool:
        """Whether any notion has a bound."""
        amounts = (self.pure, self.rho, self.mu_squared, *(value for _, value in self.renyi))
        return any(amount is not None for amount in amounts)

    @property
    def mu(self) -> float | None:
        """μ of Gaussian DP, rounded up."""
        return None if self.mu_squared is None else sqrt_rounded_up(self.mu_squared)

    def epsilon(self, delta: Fraction) -> float | None:
        """Return the smallest ε at δ, rounded up; None if the δ-side alone exceeds δ."""
        remaining = delta - self.delta
        if remaining < 0:
            return None
        candidates = [math.inf if self.pure is None else round_up_to_printed_float(self.pure)]
        if remaining:
            if self.rho is not None:
                candidates.append(zcdp_to_epsilon(self.rho, remaining))
            if self.mu is not None:
                candidates.append(gaussian_to_epsilon(self.mu, remaining))
            candidates += [
                renyi_to_epsilon(order, value, remaining)
                for order, value in self.renyi
                if value is not None
            ]
        smallest = max(min(candidates), 0.0)
        return None if math.isinf(smallest) else smallest


def report_certificates(orders: Iterable[Fraction]) -> Certificates:
    """Return the certificates of a report: pure ε, ρ, μ², `orders` and `DENSE_ORDERS`."""
    curve = (renyi(order) for order in {*orders, *DENSE_ORDERS})
    return tuple(sorted({PURE, RHO, MU_SQUARED, *curve}))


def report_loss(loss: Loss) -> CostReport:
    """Return the report of a loss in `report_certificates`, as the ledger counts it."""
    amounts = {c: _from_quanta(a) for c, a in zip(loss.certificates, loss, strict=True)}
    return CostReport(
        amounts[PURE],
        amounts[RHO],
        amounts[MU_SQUARED],
        tuple((c.order, amount) for c, amount in amounts.items() if c.notion is Notion.RENYI),
        loss.delta,
    )


def compose_reports(parts: Iterable[tuple[CostReport, int]]) -> CostReport:
    """Return the report of mechanisms together, each as often as its count.

    Every notion is additive; a notion without a bound in one part has none in the sum (theory 2.1).
    The result has the orders that all parts have; without a part, `DENSE_ORDERS`.
    """
    counted = [(report, count) for report, count in parts if count]
    curves = [(dict(report.renyi), count) for report, count in counted]
    orders = [
        o for o in (curves[0][0] if curves else DENSE_ORDERS) if all(o in c for c, _ in curves)
    ]
    return CostReport(
        _total((report.pure, count) for report, count in counted),
        _total((report.rho, count) for report, count in counted),
        _total((report.mu_squared, count) for report, count in counted),
        tuple((order, _total((curve[order], n) for curve, n in curves)) for order in orders),
        sum((report.delta * count for report, count in counted), Fraction(0)),
    )


def _total(amounts: Iterable[tuple[Fraction | None, int]]) -> Fraction | None:
    total = Fraction(0)
    for amount, count in amounts:
        if amount is None:
            return None
        total += amount * count
    return total


def _from_quanta(amount: int | None) -> Fraction | None:
    return None if amount is None else Fraction(amount, QUANTA_PER_UNIT)


def round_up_to_printed_float(value: Fraction) -> float:
    """Return the nearest float whose printed decimal is not below `value`: 0.3 stays 0.3."""
    near = float(value)
    while Fraction(repr(near)) < value:
        near = math.nextafter(near, math.inf)
    return near


def round_down_to_printed_float(value: Fraction) -> float:
    """Return the nearest float whose printed decimal is not above `value`: 0.3 stays 0.3."""
    near = float(value)
    while Fraction(repr(near)) > value:
        near = math.nextafter(near, -math.inf)
    return near


def sqrt_rounded_up(value: Fraction) -> float:
    """Return the square root, rounded up to a printed decimal."""
    near = math.sqrt(value)
    while Fraction(repr(near)) ** 2 < value:
        near = math.nextafter(near, math.inf)
    return near


def report_costs(
    mechanism: Mechanism,
    position: int,
    restatements: Mapping[str, Mechanism],
    relation: NeighbouringRelation,
    context: GroupContext,
    orders: Sequence[Fraction],
) -> list[CostReport]:
    """Return a report for every unit of the context.

    The mechanism is stated for the unit at `position`. A report has all `orders` and
    `DENSE_ORDERS`.
    """
    all_orders = tuple(sorted({*orders, *DENSE_ORDERS}))
    rows = [
        [
            None if k is None else _report(statement, k, all_orders)
            for k in steps_from(statement.context, statement.position, statement.relation)
        ]
        for statement in statements_for(mechanism, position, relation, restatements, context)
    ]
    return [
        _combine_reports([row[unit] for row in rows], all_orders)
        for unit in range(len(context.units))
    ]


def _report(statement: Statement, k: int, orders: Sequence[Fraction]) -> CostReport | None:
    """Return the report of one statement; None if its δ-side reaches 1."""
    mechanism, _, relation, context = statement
    bounds = single_run_bounds(mechanism, k, relation, context.rules)
    count = mechanism.run_count
    if bounds.delta * count >= 1:
        return None
    return CostReport(
        _multiply(bounds.pure, count),
        _multiply(bounds.rho, count),
        _multiply(bounds.mu_squared, count),
        tuple((order, _multiply(_divergence(bounds, order), count)) for order in orders),
        bounds.delta * count,
    )


def _divergence(bounds: DivergenceBounds, order: Fraction) -> Amount:
    """Return the smallest Rényi divergence of one run; exact if the parameters are rational."""
    amounts: list[Amount] = [smallest_curve(bounds)(float(order))]
    if isinstance(bounds.rho, Fraction):
        amounts.append(bounds.rho * order)
    if isinstance(bounds.pure, Fraction):
        amounts.append(bounds.pure)
    if bounds.exact is not None:
        amounts.append(bounds.exact(order))
    finite = [value for value in (_upper(amount) for amount in amounts) if value is not None]
    return min(finite, default=math.inf)


def _multiply(amount: Amount, count: int) -> Fraction | None:
    upper = _upper(amount)
    return None if upper is None else upper * count


def _upper(amount: Amount) -> Fraction | None:
    """Return a float inflated by its error, an exact amount as it is, and None for infinity."""
    if isinstance(amount, Fraction | int):
        return Fraction(amount)
    return None if math.isinf(amount) else inflate(amount)


def _combine_reports(
    reports: Sequence[CostReport | None], orders: Sequence[Fraction]
) -> CostReport:
    """Return the smallest bound of every notion, among the reports with the smallest δ-side."""
    bounded = [report for report in reports if report is not None and report.is_bounded]
    delta = min((report.delta for report in bounded), default=Fraction(0))
    best = [report for report in bounded if report.delta == delta]
    return CostReport(
        _smallest([report.pure for report in best]),
        _smallest([report.rho for report in best]),
        _smallest([report.mu_squared for report in best]),
        tuple(
            (order, _smallest([report.renyi[number][1] for report in best]))
            for number, order in enumerate(orders)
        ),
        delta,
    )


def _smallest(amounts: Sequence[Fraction | None]) -> Fraction | None:
    return min((amount for amount in amounts if amount is not None), default=None)
