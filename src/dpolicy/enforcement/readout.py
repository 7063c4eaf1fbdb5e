"""A loss and a rule → the number that people read: in the notion of the rule's budget, rounded up.

For (ε, δ) budgets it is the least ε whose thresholds would hold, so it passes the budget exactly
where the rule breaks. It is an accounting value: the guarantee is the budget (theory 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp
from dpolicy.privacy.certificates import (
    MU_SQUARED,
    QUANTA_PER_UNIT,
    RHO,
    Certificate,
    renyi,
    shown_order,
)
from dpolicy.privacy.loss import Certificates, Loss
from dpolicy.privacy.report import root_up, shown_up
from dpolicy.privacy.thresholds import Profile, conversions
from dpolicy.releases.decision import Shown

#: Reads a loss off in one notion.
Readout = Callable[[Loss], Shown]


def readout(
    budget: Budget, profile: Profile, orders: Sequence[Fraction], certificates: Certificates
) -> Readout:
    """How losses are shown beside a budget; stated leaks are told wherever there are any."""
    amounts = _amounts(budget, profile, orders, certificates)

    def shown(loss: Loss) -> Shown:
        leaks = {"delta": float(loss.delta)} if 0 < loss.delta < 1 else {}
        return {**amounts(loss), **leaks}

    return shown


def _amounts(
    budget: Budget, profile: Profile, orders: Sequence[Fraction], certificates: Certificates
) -> Readout:
    place = {certificate: position for position, certificate in enumerate(certificates)}
    match budget:
        case EpsilonDelta():
            steps = [(place[c], added) for c, added in conversions(budget, profile, orders)]
            return lambda loss: {"epsilon": _float(_epsilon(loss, steps))}
        case Gdp():
            return lambda loss: {"mu": _root(amount_at(loss, place[MU_SQUARED]))}
        case Renyi(orders=stated):
            named = [(f"renyi {shown_order(order)}", place[renyi(order)]) for order, _ in stated]
            return lambda loss: {name: _float(amount_at(loss, at)) for name, at in named}
        case Zcdp() | Unlimited():
            return lambda loss: {"rho": _float(amount_at(loss, place[RHO]))}


def read_off(
    budget: Budget, profile: Profile, orders: Sequence[Fraction]
) -> tuple[Certificate, ...]:
    """The certificates that a readout needs, also those at which the budget is no use."""
    if not isinstance(budget, EpsilonDelta):
        return ()
    return tuple(certificate for certificate, _ in conversions(budget, profile, orders))


def amount_at(loss: Loss, position: int) -> int | None:
    """An amount in quanta; None if infinite."""
    infinite = loss.infinite and loss.infinite[position]
    return None if infinite else loss.amounts[position]


def _epsilon(loss: Loss, steps: Sequence[tuple[int, int]]) -> int | None:
    found = [amount + added for at, added in steps if (amount := amount_at(loss, at)) is not None]
    return min(found, default=None)


def _float(quanta: int | None) -> float | None:
    return None if quanta is None else shown_up(Fraction(quanta, QUANTA_PER_UNIT))


def _root(quanta: int | None) -> float | None:
    return None if quanta is None else root_up(Fraction(quanta, QUANTA_PER_UNIT))
