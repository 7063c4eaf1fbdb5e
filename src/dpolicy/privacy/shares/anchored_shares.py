"""Shares of δ of the profile `anchored`: the reserves, orders near α*, and a spread (theory 2.4).

The reserves have 3/10 of the mass. Of the rest, three quarters are near α* and one quarter is
spread. α* is the order at which a budget holds most ρ. It is rounded to an order of a fixed ladder,
so that rules with different budgets share certificates. The spread has mass on all orders that a
budget can use: low orders carry DP-SGD with little noise. Both are chains, so that no threshold
falls when ε or δ grows (`chains.py`); the limits of reserves grow with both too.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from dpolicy.privacy.shares.chains import (
    CONTEXT,
    RESERVES,
    Chain,
    DeltaShares,
    Handover,
    log_kappa,
    to_decimal,
)
from dpolicy.privacy.thresholds import DEFAULT_ORDERS

#: Orders near which the mass of α* is: of the ladders that a search tried, the one that holds most
#: Gaussians at ε from 0.1 to 20 and δ from 10⁻⁹ to 10⁻⁵ (decision 0035). Recorded policies depend
#: on all numbers of this module, so they never change; another ladder needs other defaults.
LADDER: tuple[Fraction, ...] = tuple(
    Fraction(order)
    for order in (
        *("2", "2.5", "3", "3.5", "4", "4.5", "6", "8", "9", "11", "12", "18", "27", "32"),
        *("48", "64", "124", "192", "288", "480"),
    )
)

#: Order that the spread adds to the default grid: DP-SGD at small rates needs it (decision 0035).
_TRAINING_ORDER = Fraction(12)

#: Share of the reserves (docs/decisions/0033).
RESERVES_SHARE = Fraction(3, 10)

#: Share of the ladder in what the reserves leave; the spread has the rest.
_LADDER_SHARE = Fraction(3, 4)

#: By how much of log(1/δ) an order of the ladder starts to hand over before the line.
_LEAD = Decimal("0.2")


@lru_cache(maxsize=256)
def anchored_shares(orders: tuple[Fraction, ...]) -> DeltaShares:
    """Return the shares of `anchored` with the grid of a policy."""
    spread, rest = spread_orders(orders), 1 - RESERVES_SHARE
    if not spread:
        return ((RESERVES, RESERVES_SHARE), (LADDER_CHAIN, rest))
    return (
        (RESERVES, RESERVES_SHARE),
        (LADDER_CHAIN, rest * _LADDER_SHARE),
        (spread_chain(spread), rest * (1 - _LADDER_SHARE)),
    )


def spread_orders(orders: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """Return the orders of the spread: the grid of a policy, the default one with order 12."""
    return (*orders, _TRAINING_ORDER) if orders == DEFAULT_ORDERS else orders


def ladder_chain(orders: Sequence[Fraction]) -> Chain:
    """Return the chain that has its mass near α*, the order at which a budget holds most ρ.

    Two neighbouring orders hold the same ρ on a line log(1/δ) = start + slope·ε. The larger order
    starts to hand over a little before that line, so that both have mass on it.
    """
    descending = sorted(orders, reverse=True)
    handovers = [
        Handover(larger, *capacity_line(larger, smaller, (larger, smaller)))
        for larger, smaller in pairwise(descending)
    ]
    return Chain("ladder", (*handovers, Handover(descending[-1])))


def spread_chain(orders: Sequence[Fraction]) -> Chain:
    """Return the chain that has mass on all orders that a budget can use, in proportion to 1/α².

    An order hands over when the next one would have a threshold of 0 with a tenth of δ.
    """
    descending = sorted(orders, reverse=True)
    left = sum((1 / order**2 for order in descending), Fraction(0))
    handovers = []
    for larger, smaller in pairwise(descending):
        floor = 1 / larger**2 / left
        left -= 1 / larger**2
        with localcontext(CONTEXT):
            start = _round_start(-log_kappa(smaller) - Decimal(10).ln())
        handovers.append(Handover(larger, start, smaller - 1, floor))
    return Chain("spread", (*handovers, Handover(descending[-1])))


def capacity_line(
    larger: Fraction, smaller: Fraction, costs: tuple[Fraction, Fraction]
) -> tuple[Fraction, Fraction]:
    """Return start and slope of the line on which two orders admit the same number of mechanisms.

    With all of δ, order α admits (ε − (log κ(α) + log 1/δ) / (α−1)) / c of the cost c, so the slope
    is at most α − 1 for the larger order if its cost is not the smaller one.
    """
    inverses = 1 / (costs[0] * (larger - 1)), 1 / (costs[1] * (smaller - 1))
    gap = inverses[0] - inverses[1]
    with localcontext(CONTEXT):
        terms = [
            log_kappa(order) * to_decimal(inverse)
            for order, inverse in zip((larger, smaller), inverses, strict=True)
        ]
        start = _round_start((terms[1] - terms[0]) / to_decimal(gap) + _LEAD)
    return start, (1 / costs[0] - 1 / costs[1]) / gap


def _round_start(value: Decimal) -> Fraction:
    """Return a line's start to three digits: any start is sound."""
    return Fraction(value.quantize(Decimal("0.001")))


#: The chain of the ladder.
LADDER_CHAIN = ladder_chain(LADDER)
