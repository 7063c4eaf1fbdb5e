"""Certificates in which a loss is stored, and the rounding of real bounds to integers.

A certificate is one additive bound on the loss (theory 1.4): the pure ε (order ∞), the Rényi
divergence of one order, the ρ of zCDP, the μ² of Gaussian DP, or the variance beside one reserve
(theory/reserves). Amounts are integers in quanta of 10⁻¹², so sums are exact and do not depend on
the order, and a budget of 1 admits ten losses of 0.1.
A loss is rounded up once and a budget down once, so rounding never favours the spender (theory 9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import total_ordering

#: Quanta in one unit of loss: a power of ten, so that written decimals are exact (decision 0004).
QUANTA_PER_UNIT = 10**12

#: Largest relative error of a floating-point evaluation of a curve (theory 9).
FLOAT_ERROR = Fraction(1, 2**45)

#: Smallest Rényi order: below it the formulas suffer from cancellation (theory 9).
MIN_ORDER = Fraction(101, 100)

#: A loss of this size or more is stored as infinite: it is far above any real budget.
SATURATION = 2**20


class Notion(StrEnum):
    """Privacy measure that a certificate bounds."""

    PURE = "pure"
    RENYI = "renyi"
    RHO = "rho"
    MU = "mu"
    RESERVE = "reserve"


@total_ordering
@dataclass(frozen=True, slots=True)
class Certificate:
    """One additive bound; `order` is that of a Rényi certificate, or the size of a reserve."""

    notion: Notion
    order: Fraction = Fraction(0)

    def __hash__(self) -> int:
        """Return a hash of the integers; the hash of a fraction computes a modular inverse."""
        return hash((self.notion, self.order.numerator, self.order.denominator))

    def __lt__(self, other: Certificate) -> bool:
        return (self.notion, self.order) < (other.notion, other.order)

    def __str__(self) -> str:
        match self.notion:
            case Notion.RENYI:
                return f"order {format_order(self.order)}"
            case Notion.RESERVE:
                return f"reserve {format_order(self.order)}"
            case _:
                return str(self.notion)


PURE = Certificate(Notion.PURE)
RHO = Certificate(Notion.RHO)
MU_SQUARED = Certificate(Notion.MU)


def renyi(order: Fraction | int | float | str) -> Certificate:
    """Return the certificate of a Rényi order."""
    return Certificate(Notion.RENYI, Fraction(order))


def reserve(size: Fraction) -> Certificate:
    """Return the certificate of a reserve: a Gaussian of this variance that never runs."""
    return Certificate(Notion.RESERVE, size)


def format_order(order: Fraction) -> str:
    """Return an order as text with all digits, so that different orders have different texts."""
    return str(order.numerator) if order.denominator == 1 else repr(float(order))


def quanta_up(amount: Fraction | int) -> int:
    """Return an exact amount in quanta, rounded up."""
    return math.ceil(amount * QUANTA_PER_UNIT)


def quanta_down(amount: Fraction | int) -> int:
    """Return an exact amount in quanta, rounded down."""
    return math.floor(amount * QUANTA_PER_UNIT)


def inflate(value: float) -> Fraction:
    """Return an upper bound of the real number that a float evaluation approximates."""
    return Fraction(value) * (1 + (FLOAT_ERROR if value >= 0 else -FLOAT_ERROR))
