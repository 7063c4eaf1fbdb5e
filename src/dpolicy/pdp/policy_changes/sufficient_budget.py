"""Sufficient budget: the smallest budget of a rule's notion that recorded releases satisfy.

With `anchored`, the orders and their shares of δ depend on ε, and with every profile
they depend on δ. The smallest ε is therefore searched through the bounds of other budgets, not
converted. A bound of these profiles may offer an order that the balances do not have; the next
larger order then counts, so the result is enough and may not be the smallest.
"""

from __future__ import annotations

from fractions import Fraction

from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.policy.model import Accounting
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.certificates import PURE, QUANTA_PER_UNIT, Certificate, Notion, renyi
from dpolicy.privacy.cost_report import DENSE_ORDERS, round_up_to_printed_float
from dpolicy.privacy.loss import INFINITE, Certificates, Loss
from dpolicy.privacy.thresholds import BudgetBound, bound_for_budget

#: Orders below those of a cost report, for budgets with a large ε.
_LOW_ORDERS = tuple(Fraction(order) for order in ("1.02", "1.05", "1.1", "1.15", "1.2"))


def smallest_sufficient_budget(status: RuleStatus) -> dict[str, float | None]:
    """Return the smallest budget that recorded releases satisfy, in the notion of the rule's own.

    A value is None if no budget of this notion is enough: the loss is infinite, or it has a δ-side
    and the budget allows none.
    """
    budget, bound = status.rule.budget, status.rule.bound
    delta = status.loss.delta
    spent = {key: value for key, value in status.spent.items() if key != "delta"}
    exceeds_delta = bool(delta) and bound.delta is not None and delta > bound.delta
    if not isinstance(budget, EpsilonDelta):
        return dict.fromkeys(spent) if exceeds_delta else spent
    if not exceeds_delta:
        if not status.rule.base.profile.has_anchor:
            return spent
        return {"epsilon": _smallest_epsilon(status, budget.delta)}
    if not bound.delta or delta * budget.delta >= bound.delta:
        return dict.fromkeys(spent)
    least_delta = round_up_to_printed_float(delta * budget.delta / bound.delta)
    epsilon = _smallest_epsilon(status, Fraction(repr(least_delta)))
    return {"epsilon": epsilon, "delta": least_delta}


def searched_certificates(accounting: Accounting) -> Certificates:
    """Return the certificates that make the search close to the smallest budget."""
    return tuple(
        sorted(
            {renyi(order) for order in (*_LOW_ORDERS, *DENSE_ORDERS)}
            | {renyi(order) for order in accounting.orders}
        )
    )


def is_smallest(status: RuleStatus) -> bool:
    """Return whether no budget below the sufficient one is enough too."""
    is_converted = isinstance(status.rule.budget, EpsilonDelta)
    return not (is_converted and status.rule.base.profile.has_anchor)


def _smallest_epsilon(status: RuleStatus, delta: Fraction) -> float | None:
    """Return the smallest ε that is enough at δ, rounded up; None if none is."""
    profile, accounting = status.rule.base.profile, status.accounting
    leaks, shares = accounting.leaks_for(profile), accounting.shares_for(profile)

    def is_enough(quanta: int) -> bool:
        budget = EpsilonDelta(Fraction(quanta, QUANTA_PER_UNIT), delta)
        bound = bound_for_budget(budget, profile, accounting.orders, leaks, shares)
        return _satisfies(status.loss, bound)

    too_little, enough = 0, QUANTA_PER_UNIT // 1000
    while not is_enough(enough):
        too_little, enough = enough, 2 * enough
        if enough >= INFINITE:
            return None
    while enough - too_little > 1:
        middle = (too_little + enough) // 2
        too_little, enough = (too_little, middle) if is_enough(middle) else (middle, enough)
    return round_up_to_printed_float(Fraction(enough, QUANTA_PER_UNIT))


def _satisfies(loss: Loss, bound: BudgetBound) -> bool:
    return any(
        all(_upper_amount(loss, certificate) <= limit for certificate, limit in clause)
        for clause in bound.clauses
    )


def _upper_amount(loss: Loss, certificate: Certificate) -> int:
    """Return the amount of a certificate, or of the next larger order that the loss has."""
    amounts = dict(zip(loss.certificates, loss.amounts, strict=True))
    if certificate in amounts:
        return amounts[certificate]
    if certificate.notion is not Notion.RENYI:
        return INFINITE
    larger = [
        amount
        for other, amount in amounts.items()
        if other == PURE or (other.notion is Notion.RENYI and other.order > certificate.order)
    ]
    return min(larger, default=INFINITE)
