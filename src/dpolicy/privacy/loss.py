"""Costs → what they add up to: exact integers per certificate, free of order (theory 9).

A loss keeps the amount of every certificate in quanta, and the δ-side as an exact fraction. Nothing
is rounded here but what reaches `INFINITE`, which stays there: a sum is the same in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.certificates import QUANTA_PER_UNIT, SATURATION, Certificate

#: The certificates that a loss is kept in, in the order of its amounts.
Certificates = tuple[Certificate, ...]

#: An amount of this many quanta or more is infinite. Two of them still fit into 64 bits.
INFINITE = SATURATION * QUANTA_PER_UNIT


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss in every certificate: `amounts` are quanta, `delta` the probability that all leaks."""

    certificates: Certificates
    amounts: tuple[int, ...]
    delta: Fraction = Fraction(0)

    def __iter__(self) -> Iterator[int | None]:
        """The amounts in the order of the certificates, None where infinite."""
        return (None if amount >= INFINITE else amount for amount in self.amounts)


def make_loss(
    certificates: Certificates, amounts: Iterable[int | None], delta: Fraction = Fraction(0)
) -> Loss:
    """A loss from one amount per certificate; None is infinite."""
    given = tuple([INFINITE if a is None or a > INFINITE else a for a in amounts])
    if len(given) != len(certificates):
        raise InvariantBroken(f"{len(given)} amounts for {len(certificates)} certificates")
    if given and min(given) < 0:
        raise InvariantBroken(f"a loss of {min(given)} quanta")
    return Loss(certificates, given, delta)


def zero_loss(certificates: Certificates) -> Loss:
    """No loss."""
    return Loss(certificates, (0,) * len(certificates))


def unbounded_loss(certificates: Certificates) -> Loss:
    """The loss of something about which nothing is known: infinite, and everything may leak."""
    return Loss(certificates, (INFINITE,) * len(certificates), Fraction(1))


def add_losses(a: Loss, b: Loss) -> Loss:
    """The loss of both."""
    _check_alike(a, b)
    amounts = (x + y for x, y in zip(a.amounts, b.amounts, strict=True))
    return make_loss(a.certificates, amounts, a.delta + b.delta if b.delta else a.delta)


def is_at_most(a: Loss, b: Loss) -> bool:
    """Whether `a` is at most `b` in every certificate and in the δ-side."""
    _check_alike(a, b)
    return a.delta <= b.delta and all(x <= y for x, y in zip(a.amounts, b.amounts, strict=True))


def elementwise_min(a: Loss, b: Loss) -> Loss:
    """The smaller amount in every certificate, of two bounds on the same loss.

    Each certificate is a bound of its own given the δ-side, so both must have the same one.
    """
    _check_alike(a, b)
    if a.delta != b.delta:
        raise InvariantBroken("bounds with different δ-sides cannot be mixed")
    return Loss(a.certificates, tuple(map(min, a.amounts, b.amounts)), a.delta)


def elementwise_max(a: Loss, b: Loss) -> Loss:
    """The larger amount in every certificate, and the larger δ-side."""
    _check_alike(a, b)
    return Loss(a.certificates, tuple(map(max, a.amounts, b.amounts)), max(a.delta, b.delta))


def amount_in(a: Loss, certificate: Certificate) -> int | None:
    """The quanta in one certificate; None where it is infinite or not kept."""
    if certificate not in a.certificates:
        return None
    found = a.amounts[a.certificates.index(certificate)]
    return None if found >= INFINITE else found


def _check_alike(a: Loss, b: Loss) -> None:
    if a.certificates is not b.certificates and a.certificates != b.certificates:
        raise InvariantBroken("losses in different certificates do not mix")
