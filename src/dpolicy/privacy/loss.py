"""Costs → what they add up to: exact integers per certificate, free of order (theory 9).

A loss keeps, for every certificate, the sum of its finite amounts in quanta and how many infinite
ones there were, and the δ-side as an exact fraction. Nothing is rounded here: a sum is the same in
any order, and taking away what was added gives back the loss from before, infinities included.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.certificates import QUANTA_PER_UNIT, SATURATION, Certificate

#: The certificates that a loss is kept in, in the order of its amounts.
Certificates = tuple[Certificate, ...]

#: An amount of this many quanta or more is kept as infinite.
SATURATION_QUANTA = SATURATION * QUANTA_PER_UNIT


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss in every certificate.

    `amounts` are quanta; `infinite` counts infinite terms per certificate and is empty if there are
    none; `delta` is the probability that everything leaks.
    """

    certificates: Certificates
    amounts: tuple[int, ...]
    infinite: tuple[int, ...] = ()
    delta: Fraction = Fraction(0)

    def __iter__(self) -> Iterator[int | None]:
        """The amounts in the order of the certificates, None where infinite."""
        if not self.infinite:
            return iter(self.amounts)
        pairs = zip(self.amounts, self.infinite, strict=True)
        return (None if count else amount for amount, count in pairs)


def loss(
    certificates: Certificates, amounts: Iterable[int | None], delta: Fraction = Fraction(0)
) -> Loss:
    """A loss from one amount per certificate; None, or one that saturates, is infinite."""
    given = tuple(amounts)
    if len(given) != len(certificates):
        raise InvariantBroken(f"{len(given)} amounts for {len(certificates)} certificates")
    finite = tuple([a or 0 for a in given])
    if finite and (min(finite) < 0 or max(finite) >= SATURATION_QUANTA):
        return loss(certificates, map(_saturated, given), delta)
    infinite = tuple([int(a is None) for a in given]) if None in given else ()
    return Loss(certificates, finite, infinite, delta)


def _saturated(amount: int | None) -> int | None:
    if amount is not None and amount < 0:
        raise InvariantBroken(f"a loss of {amount} quanta")
    return None if amount is None or amount >= SATURATION_QUANTA else amount


def zero(certificates: Certificates) -> Loss:
    """No loss."""
    return Loss(certificates, (0,) * len(certificates))


def unbounded(certificates: Certificates) -> Loss:
    """The loss of something about which nothing is known: infinite, and everything may leak."""
    return Loss(certificates, (0,) * len(certificates), (1,) * len(certificates), Fraction(1))


def add(a: Loss, b: Loss) -> Loss:
    """The loss of both."""
    _check_alike(a, b)
    return Loss(
        a.certificates,
        tuple(map(operator.add, a.amounts, b.amounts)),
        _combined(operator.add, a, b) if a.infinite or b.infinite else (),
        a.delta + b.delta if b.delta else a.delta,
    )


def subtract(a: Loss, b: Loss) -> Loss:
    """The loss from before `b` was added."""
    _check_alike(a, b)
    result = Loss(
        a.certificates,
        tuple(map(operator.sub, a.amounts, b.amounts)),
        _combined(operator.sub, a, b) if a.infinite or b.infinite else (),
        a.delta - b.delta if b.delta else a.delta,
    )
    if min(result.amounts, default=0) < 0 or min(result.infinite, default=0) < 0:
        raise InvariantBroken("more is taken away from a loss than was added")
    if result.delta < 0:
        raise InvariantBroken("more δ is taken away from a loss than was added")
    return result


def scale(a: Loss, times: int) -> Loss:
    """The loss of so many copies, the same as adding them one by one."""
    if times < 0:
        raise InvariantBroken(f"a loss taken {times} times")
    return Loss(
        a.certificates,
        tuple(amount * times for amount in a.amounts),
        tuple(count * times for count in a.infinite) if times else (),
        a.delta * times,
    )


def total(losses: Iterable[Loss], certificates: Certificates) -> Loss:
    """The loss of all of them."""
    terms = list(losses)
    if not terms:
        return zero(certificates)
    for term in terms:
        _check_alike(terms[0], term)
    infinite = [term.infinite for term in terms if term.infinite]
    return Loss(
        certificates,
        tuple(map(sum, zip(*(term.amounts for term in terms), strict=True))),
        tuple(map(sum, zip(*infinite, strict=True))),
        sum((term.delta for term in terms if term.delta), Fraction(0)),
    )


def no_more(a: Loss, b: Loss) -> bool:
    """Whether `a` is at most `b` in every certificate and in the δ-side."""
    _check_alike(a, b)
    return a.delta <= b.delta and all(
        y is None or (x is not None and x <= y) for x, y in zip(a, b, strict=True)
    )


def least(a: Loss, b: Loss) -> Loss:
    """The smaller amount in every certificate, of two bounds on the same loss.

    Each certificate is a bound of its own given the δ-side, so both must have the same one.
    """
    _check_alike(a, b)
    if a.delta != b.delta:
        raise InvariantBroken("bounds with different δ-sides cannot be mixed")
    smaller = (y if x is None else x if y is None else min(x, y) for x, y in zip(a, b, strict=True))
    return loss(a.certificates, smaller, a.delta)


def most(a: Loss, b: Loss) -> Loss:
    """The larger amount in every certificate, and the larger δ-side."""
    _check_alike(a, b)
    larger = (None if x is None or y is None else max(x, y) for x, y in zip(a, b, strict=True))
    return loss(a.certificates, larger, max(a.delta, b.delta))


def amount(a: Loss, certificate: Certificate) -> int | None:
    """The quanta in one certificate; None where it is infinite or not kept."""
    if certificate not in a.certificates:
        return None
    position = a.certificates.index(certificate)
    if a.infinite and a.infinite[position]:
        return None
    return a.amounts[position]


def _check_alike(a: Loss, b: Loss) -> None:
    if a.certificates is not b.certificates and a.certificates != b.certificates:
        raise InvariantBroken("losses in different certificates do not mix")


def _combined(operation: Callable[[int, int], int], a: Loss, b: Loss) -> tuple[int, ...]:
    """Infinity counts, in the one form that equal losses share: empty if there are none."""
    none = (0,) * len(a.amounts)
    counts = tuple(map(operation, a.infinite or none, b.infinite or none))
    return counts if any(counts) else ()
