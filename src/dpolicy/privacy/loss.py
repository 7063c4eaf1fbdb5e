"""Losses and their composition: exact integers per certificate (theory 9).

A loss has an amount in quanta per certificate, and the δ-side as an exact fraction. Addition is
exact; an amount that reaches `INFINITE` stays there. A sum is therefore the same in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.certificates import QUANTA_PER_UNIT, SATURATION, Certificate

#: Certificates of a loss, in the order of its amounts.
Certificates = tuple[Certificate, ...]

#: An amount of this many quanta or more is infinite. The sum of two of them fits into 64 bits.
INFINITE = SATURATION * QUANTA_PER_UNIT


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss in every certificate: `amounts` are quanta, `delta` is the δ-side."""

    certificates: Certificates
    amounts: tuple[int, ...]
    delta: Fraction = Fraction(0)

    def __iter__(self) -> Iterator[int | None]:
        """Iterate over the amounts in the order of the certificates; None if infinite."""
        return (None if amount >= INFINITE else amount for amount in self.amounts)


def make_loss(
    certificates: Certificates, amounts: Iterable[int | None], delta: Fraction = Fraction(0)
) -> Loss:
    """Return a loss from one amount per certificate; None is infinite."""
    quanta = tuple([INFINITE if a is None or a > INFINITE else a for a in amounts])
    if len(quanta) != len(certificates):
        raise InvariantBroken(f"{len(quanta)} amounts for {len(certificates)} certificates")
    if quanta and min(quanta) < 0:
        raise InvariantBroken(f"a loss of {min(quanta)} quanta")
    return Loss(certificates, quanta, delta)


def zero_loss(certificates: Certificates) -> Loss:
    """Return the loss of no mechanism."""
    return Loss(certificates, (0,) * len(certificates))


def unbounded_loss(certificates: Certificates) -> Loss:
    """Return the loss of a mechanism without any bound: infinite, with a δ-side of 1."""
    return Loss(certificates, (INFINITE,) * len(certificates), Fraction(1))


def add_losses(a: Loss, b: Loss) -> Loss:
    """Return the loss of the composition."""
    _check_same_certificates(a, b)
    amounts = (x + y for x, y in zip(a.amounts, b.amounts, strict=True))
    return make_loss(a.certificates, amounts, a.delta + b.delta if b.delta else a.delta)


def is_at_most(a: Loss, b: Loss) -> bool:
    """Return whether `a` is at most `b` in every certificate and in the δ-side."""
    _check_same_certificates(a, b)
    return a.delta <= b.delta and all(x <= y for x, y in zip(a.amounts, b.amounts, strict=True))


def elementwise_min(a: Loss, b: Loss) -> Loss:
    """Return the smaller amount in every certificate, of two bounds on the same loss.

    Each certificate is a bound given the δ-side, so both bounds must have the same δ-side.
    """
    _check_same_certificates(a, b)
    if a.delta != b.delta:
        raise InvariantBroken("bounds have different δ-sides")
    return Loss(a.certificates, tuple(map(min, a.amounts, b.amounts)), a.delta)


def elementwise_max(a: Loss, b: Loss) -> Loss:
    """Return the larger amount in every certificate, and the larger δ-side."""
    _check_same_certificates(a, b)
    return Loss(a.certificates, tuple(map(max, a.amounts, b.amounts)), max(a.delta, b.delta))


def amount_in(a: Loss, certificate: Certificate) -> int | None:
    """Return the quanta in one certificate; None if infinite, or if the loss does not have it."""
    if certificate not in a.certificates:
        return None
    amount = a.amounts[a.certificates.index(certificate)]
    return None if amount >= INFINITE else amount


def _check_same_certificates(a: Loss, b: Loss) -> None:
    if a.certificates is not b.certificates and a.certificates != b.certificates:
        raise InvariantBroken("losses have different certificates")
