"""A loss and a bound → whether it fits: the only comparison with a budget anywhere (theory 2.3).

A release fits if the δ-side of all that was spent with it is within the bound's, and if at least
one clause of certificates still holds. Both sides are exact: there is no tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss import Certificates, Loss, add
from dpolicy.privacy.thresholds import Bound


@dataclass(frozen=True, slots=True)
class Gate:
    """A bound laid out for losses that are kept in given certificates, by position."""

    certificates: Certificates
    clauses: tuple[tuple[tuple[int, int], ...], ...]
    delta: Fraction | None


def gate(bound: Bound, certificates: Certificates) -> Gate:
    """Lay a bound out for losses in these certificates; every one it names must be among them."""
    place = {certificate: position for position, certificate in enumerate(certificates)}
    missing = [c for clause in bound.clauses for c, _ in clause if c not in place]
    if missing:
        raise InvariantBroken(f"losses are not kept in {missing[0]}")
    clauses = tuple(tuple((place[c], most) for c, most in clause) for clause in bound.clauses)
    return Gate(certificates, clauses, bound.delta)


def fits(spent: Loss, cost: Loss, within: Gate) -> bool:
    """Whether `cost` may be added to `spent`."""
    return holds(add(spent, cost), within)


def holds(loss: Loss, within: Gate) -> bool:
    """Whether a loss is within a bound."""
    if loss.certificates is not within.certificates and loss.certificates != within.certificates:
        raise InvariantBroken("a loss and a bound are kept in different certificates")
    if within.delta is not None and loss.delta > within.delta:
        return False
    amounts, infinite = loss.amounts, loss.infinite
    return any(
        all(amounts[i] <= most and not (infinite and infinite[i]) for i, most in clause)
        for clause in within.clauses
    )
