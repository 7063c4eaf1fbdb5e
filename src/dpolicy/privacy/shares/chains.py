"""Shares of δ that are monotone in (ε, δ): chains of orders that hand their mass over (theory 2.3).

A chain lists orders from the largest to the smallest. Under a small budget, the first order has all
of the mass of the chain. As ε or δ grows, each order hands its mass over to the next one, so slowly
that no threshold falls when the budget grows (`docs/theory/thresholds.md`). With L = log(1/δ):

    q = max(floor, min(1, e^(L − start − slope·ε)))   part of the mass that an order keeps
    w = q · Π (1 − q of the orders before it)         its share of the mass of the chain
    b = (log(w·δ·e^((α−1)ε)) − log κ(α)) / (α−1)      its threshold

All numbers are decimals, and every operation is rounded correctly and is monotone in ε and in δ. So
the computed thresholds are monotone too, and they are the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.certificates import SATURATION

#: Arithmetic of this module: 40 digits, and exponents for e^(αε) with any order and budget.
CONTEXT = Context(prec=40, Emax=MAX_EMAX, Emin=MIN_EMIN)

#: Upper bound of the error of a threshold, by which it is lowered. With ε ≤ 2²¹ and orders up to
#: 10⁶ the exponents stay below 10¹³, so 40 digits leave an error below 10⁻²⁵.
_ERROR = Fraction(1, 10**20)

#: Larger budgets get the thresholds of this ε: losses are infinite from `SATURATION` on.
_MAX_EPSILON = Fraction(2 * SATURATION)


@dataclass(frozen=True, slots=True)
class Handover:
    """Order of a chain, and when it hands its mass over to the next order.

    The last order of a chain has no `start`: it keeps everything that it gets.
    """

    order: Fraction
    start: Fraction | None = None
    slope: Fraction = Fraction(0)
    floor: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        """Check the assumptions of the proof: 0 ≤ slope ≤ α − 1 and 0 ≤ floor ≤ 1."""
        if not 0 <= self.slope <= self.order - 1 or not 0 <= self.floor <= 1:
            raise InvariantBroken(f"order {self.order} hands over faster than its threshold allows")


@dataclass(frozen=True, slots=True)
class Chain:
    """Orders from the largest to the smallest that share one part of δ.

    A chain without orders is the part of the reserves (`RESERVES`).
    """

    name: str
    handovers: tuple[Handover, ...]


#: The part of the reserves, which share one mass and have no orders (theory/reserves).
RESERVES = Chain("reserves", ())

#: Chains, each with its share of the mass; the shares sum to at most 1.
DeltaShares = tuple[tuple[Chain, Fraction], ...]


def reserves_share(shares: DeltaShares) -> Fraction:
    """Return the share of the reserves."""
    return sum((share for chain, share in shares if chain == RESERVES), Fraction(0))


@lru_cache(maxsize=4096)
def order_limits(
    epsilon: Fraction, delta: Fraction, shares: DeltaShares, mass: Fraction
) -> tuple[tuple[Fraction, Fraction], ...]:
    """Return every order with a share of δ, with its threshold, rounded down; it can be negative.

    All chains together have the part `mass` of δ.
    """
    if not delta or not mass:
        return ()
    with localcontext(CONTEXT):
        size = to_decimal(min(epsilon, _MAX_EPSILON))
        inverse = -to_decimal(delta).ln()
        grown: dict[Fraction, Decimal] = {}
        for chain, share in shares:
            left = to_decimal(share * mass)
            for handover in chain.handovers:
                if not left:
                    break
                kept, growth = _kept_mass(handover, size, inverse)
                grown[handover.order] = grown.get(handover.order, Decimal(0)) + left * growth
                left *= 1 - kept
        return tuple(
            (order, Fraction((growth.ln() - log_kappa(order)) / to_decimal(order - 1)) - _ERROR)
            for order, growth in sorted(grown.items())
        )


def single_order(order: Fraction) -> Chain:
    """Return the chain of one order, which has the same share for every budget."""
    return Chain("order", (Handover(order),))


@lru_cache(maxsize=4096)
def log_kappa(order: Fraction) -> Decimal:
    """Return log κ(α) = (α−1) log(1 − 1/α) − log α to 40 digits."""
    with localcontext(CONTEXT):
        alpha = to_decimal(order)
        return (alpha - 1) * ((alpha - 1) / alpha).ln() - alpha.ln()


def to_decimal(value: Fraction) -> Decimal:
    """Return a fraction as a decimal, rounded correctly in the active context."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def _kept_mass(handover: Handover, size: Decimal, inverse: Decimal) -> tuple[Decimal, Decimal]:
    """Return q, which falls as a budget grows, and q·δ·e^((α−1)ε), which grows with it."""
    excess = to_decimal(handover.order - 1)
    whole = excess * size - inverse
    if handover.start is None:
        return Decimal(1), whole.exp()
    start, floor = to_decimal(handover.start), to_decimal(handover.floor)
    pinned = to_decimal(handover.order - 1 - handover.slope) * size - start
    kept = min(Decimal(0), inverse - start - to_decimal(handover.slope) * size).exp()
    return max(floor, kept), max(floor * whole.exp(), min(whole, pinned).exp())
