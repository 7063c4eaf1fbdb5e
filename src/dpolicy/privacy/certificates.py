"""Real bounds → exact integers: the certificates a loss is kept in, and how numbers are rounded.

A certificate is one additive bound on the loss (theory 1.4): the pure ε (order ∞), the Rényi
divergence of one order, the ρ of zCDP, or the μ² of Gaussian DP. Amounts are integers in quanta of
10⁻¹², so sums are exact, associative and free of order, and a budget of 1 admits ten losses of 0.1.
A loss is rounded up and a budget down, each once: the spender never gains (theory 9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import total_ordering

#: Quanta in one unit of loss. Decimal, so that what people write is exact (docs/decisions/0004).
QUANTA_PER_UNIT = 10**12

#: Relative error that a floating-point evaluation of a curve may have (theory 9).
FLOAT_ERROR = Fraction(1, 2**45)

#: The smallest order: below it the formulas cancel (theory 9).
MIN_ORDER = Fraction(101, 100)

#: A loss of this size or more is kept as infinite: no budget that people write is near it.
SATURATION = 2**20


class Notion(StrEnum):
    """What kind of divergence a certificate bounds."""

    PURE = "pure"
    RENYI = "renyi"
    RHO = "rho"
    MU = "mu"


@total_ordering
@dataclass(frozen=True, slots=True)
class Certificate:
    """One additive bound; `order` is given for Rényi certificates only."""

    notion: Notion
    order: Fraction = Fraction(0)

    def __lt__(self, other: Certificate) -> bool:
        return (self.notion, self.order) < (other.notion, other.order)

    def __str__(self) -> str:
        return (
            f"order {format_order(self.order)}" if self.notion is Notion.RENYI else str(self.notion)
        )


PURE = Certificate(Notion.PURE)
RHO = Certificate(Notion.RHO)
MU_SQUARED = Certificate(Notion.MU)


def renyi(order: Fraction | int | float | str) -> Certificate:
    """The certificate of one Rényi order."""
    return Certificate(Notion.RENYI, Fraction(order))


def format_order(order: Fraction) -> str:
    """An order as text, all of its digits: two orders are never shown alike."""
    return str(order.numerator) if order.denominator == 1 else repr(float(order))


def quanta_up(amount: Fraction | int) -> int:
    """The least number of quanta that is no less than an exact amount."""
    return math.ceil(amount * QUANTA_PER_UNIT)


def quanta_down(amount: Fraction | int) -> int:
    """The largest number of quanta that is no more than an exact amount."""
    return math.floor(amount * QUANTA_PER_UNIT)


def inflate(value: float) -> Fraction:
    """An upper bound of the real number that a float evaluation approximates."""
    return Fraction(value) * (1 + (FLOAT_ERROR if value >= 0 else -FLOAT_ERROR))
