"""A loss and a rule → the number that people read: in the notion of the rule's budget, rounded up.

For (ε, δ) budgets it is the least ε whose thresholds would hold, so it passes the budget exactly
where the rule breaks. It is an accounting value: the guarantee is the budget (theory 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp
from dpolicy.privacy.certificates import MU_SQUARED, QUANTA_PER_UNIT, RHO, renyi, shown_order
from dpolicy.privacy.loss import Certificates, Loss
from dpolicy.privacy.report import root_up, shown_up
from dpolicy.privacy.thresholds import Profile, conversions
from dpolicy.releases.decision import Shown

#: Reads a loss off in one notion.
Readout = Callable[[Loss], Shown]


def readout(
    budget: Budget, profile: Profile, orders: Sequence[Fraction], certificates: Certificates
) -> Readout:
    """How losses are shown beside a budget."""
    place = {certificate: position for position, certificate in enumerate(certificates)}
    match budget:
        case EpsilonDelta():
            steps = [
                (place[c], added) for c, added in conversions(budget, profile, orders) if c in place
            ]
            return lambda loss: _epsilon(loss, steps)
        case Gdp():
            return lambda loss: {"mu": _root(amount_at(loss, place[MU_SQUARED]))}
        case Renyi(orders=stated):
            named = [(f"renyi {shown_order(order)}", place[renyi(order)]) for order, _ in stated]
            return lambda loss: {name: _float(amount_at(loss, at)) for name, at in named}
        case Zcdp() | Unlimited():
            return lambda loss: {"rho": _float(amount_at(loss, place[RHO]))}


def amount_at(loss: Loss, position: int) -> int | None:
    """An amount in quanta; None if infinite."""
    infinite = loss.infinite and loss.infinite[position]
    return None if infinite else loss.amounts[position]


def _epsilon(loss: Loss, steps: Sequence[tuple[int, int]]) -> Shown:
    found = [amount + added for at, added in steps if (amount := amount_at(loss, at)) is not None]
    leaks = {"delta": float(loss.delta)} if loss.delta else {}
    return {"epsilon": _float(min(found, default=None)), **leaks}


def _float(quanta: int | None) -> float | None:
    return None if quanta is None else shown_up(Fraction(quanta, QUANTA_PER_UNIT))


def _root(quanta: int | None) -> float | None:
    return None if quanta is None else root_up(Fraction(quanta, QUANTA_PER_UNIT))
