"""Shares of δ that are tuned for a mix of typical mechanisms (theory 2.4).

The mix and the budgets are part of the policy, so the shares are fixed before any release. The
choice has two steps, both deterministic:

1. For every budget, the order that admits the mix most often. These orders form a chain whose
   handovers are where two orders admit the mix equally often.
2. The shares of the candidates in multiples of 1/20: the reserves, this chain, and the ladder of
   `anchored`. The spread always has 1/20, so that mechanisms outside of the mix are admitted too;
   it is on the ladder if the policy has no grid.

Numbers that come from floating-point costs are rounded before they are compared, and ties go to the
first choice, so that the last digit of a cost does not change the result. All parts are chains:
tuned thresholds are monotone in (ε, δ).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from dpolicy.privacy.certificates import QUANTA_PER_UNIT, Certificate, renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.mechanisms.cost_rules import NEWEST_RULES, CostRules
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.reserves.ladder import LADDER as RESERVE_LADDER
from dpolicy.privacy.reserves.reserve_limits import reserve_limits
from dpolicy.privacy.shares.anchored_shares import (
    LADDER,
    LADDER_CHAIN,
    capacity_line,
    spread_chain,
    spread_orders,
)
from dpolicy.privacy.shares.chains import (
    RESERVES,
    Chain,
    DeltaShares,
    Handover,
    order_limits,
    reserves_share,
    single_order,
)
from dpolicy.privacy.thresholds import DEFAULT_ORDERS
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

#: Orders from which a tuned chain is chosen.
CANDIDATE_ORDERS: tuple[Fraction, ...] = tuple(
    sorted({*LADDER, *DEFAULT_ORDERS, *map(Fraction, (7, 10, 13, 14, 15, 20, 24))})
)

#: Largest number of budgets for which shares are tuned; more are thinned out evenly.
MAX_BUDGETS = 8

#: Shares are multiples of 1/20, and the spread has one of them.
_PARTS, _SPREAD_PARTS = 20, 1

#: Mechanisms, each with its weight in the mix.
Mix = tuple[tuple[Mechanism, Fraction], ...]

#: ε and δ of a budget.
BudgetPoint = tuple[Fraction, Fraction]


class MixCosts(NamedTuple):
    """Weighted cost of a mix, in quanta, by order and by certificate of the reserves.

    Only finite costs above 0 are in it. Those of orders do not fall as the order grows, which lines
    of handovers need.
    """

    orders: Mapping[Fraction, Fraction]
    reserves: Mapping[Certificate, Fraction]


@lru_cache(maxsize=64)
def tuned_shares(
    mix: Mix,
    relation: NeighbouringRelation,
    points: tuple[BudgetPoint, ...],
    orders: tuple[Fraction, ...],
    rules: CostRules = NEWEST_RULES,
) -> DeltaShares | None:
    """Return the shares that admit most of the mix over all budgets; None if none admits it.

    `rules` are those of the policy: a recorded policy keeps its shares.
    """
    costs = mix_costs(mix, relation, rules)
    single = {point: _best_chains(point, costs) for point in _thin_out(points)}
    limits = {p: admitted for p, (admitted, _) in single.items() if admitted}
    if not limits:
        return None
    best = {order for _, order in single.values() if order is not None}
    candidates = [LADDER_CHAIN]
    candidates += [tuned_chain(sorted(best), costs.orders)] if best else []
    candidates += [RESERVES] if costs.reserves else []
    spread = spread_chain(spread_orders(orders) or LADDER), Fraction(_SPREAD_PARTS, _PARTS)

    def admitted_share(shares: DeltaShares) -> int:
        """Return the mean part of what the best order of each budget would admit, rounded."""
        parts = [admitted_mixes(point, shares, costs) / limit for point, limit in limits.items()]
        return math.floor(sum(parts) / len(parts) * 10**6)

    splits = [
        (*_with_shares(candidates, split), spread)
        for split in _splits(_PARTS - _SPREAD_PARTS, len(candidates))
    ]
    return max(splits, key=admitted_share)


def mix_costs(
    mix: Mix, relation: NeighbouringRelation, rules: CostRules = NEWEST_RULES
) -> MixCosts:
    """Return the weighted costs of a mix at every candidate order and beside every reserve."""
    certificates = (*map(renyi, CANDIDATE_ORDERS), *RESERVE_LADDER)
    losses = [
        (cost(mechanism, 1, relation, certificates, rules), weight) for mechanism, weight in mix
    ]
    orders: dict[Fraction, Fraction] = {}
    reserves: dict[Certificate, Fraction] = {}
    largest = Fraction(0)
    for position, certificate in enumerate(certificates):
        amounts = [(loss.amounts[position], weight) for loss, weight in losses]
        if any(amount >= INFINITE for amount, _ in amounts):
            continue
        total = _round_up(sum((amount * weight for amount, weight in amounts), Fraction(0)))
        if certificate in RESERVE_LADDER:
            if total:
                reserves[certificate] = total
            continue
        largest = max(largest, total)
        if largest:
            orders[certificate.order] = largest
    return MixCosts(orders, reserves)


def tuned_chain(orders: Sequence[Fraction], costs: Mapping[Fraction, Fraction]) -> Chain:
    """Return the chain of orders whose handovers are where two orders admit a mix equally often."""
    descending = sorted(orders, reverse=True)
    handovers = []
    for larger, smaller in pairwise(descending):
        start, slope = capacity_line(larger, smaller, (costs[larger], costs[smaller]))
        handovers.append(Handover(larger, start, Fraction(math.floor(slope * 1000), 1000)))
    return Chain("tuned", (*handovers, Handover(descending[-1])))


def only_order(order: Fraction) -> DeltaShares:
    """Return shares that give everything to one order."""
    return ((single_order(order), Fraction(1)),)


def admitted_mixes(
    point: BudgetPoint,
    shares: DeltaShares,
    costs: MixCosts,
    mass: Fraction = Fraction(1),
) -> Fraction:
    """Return how often a part of δ admits a mix, in the best certificate, to six digits."""
    epsilon, delta = point
    counts = [
        QUANTA_PER_UNIT * max(limit, Fraction(0)) / costs.orders[order]
        for order, limit in order_limits(epsilon, delta, shares, mass)
        if order in costs.orders
    ]
    counts += [
        limit / costs.reserves[certificate]
        for certificate, limit in reserve_limits(epsilon, delta * mass * reserves_share(shares))
        if certificate in costs.reserves
    ]
    return _round_up(max(counts, default=Fraction(0)))


def _thin_out(points: tuple[BudgetPoint, ...]) -> list[BudgetPoint]:
    """Return the distinct budgets in order, at most `MAX_BUDGETS`, with the first and the last."""
    distinct = sorted({point for point in points if point[0] and point[1]})
    if len(distinct) <= MAX_BUDGETS:
        return distinct
    step = Fraction(len(distinct) - 1, MAX_BUDGETS - 1)
    return [distinct[round(number * step)] for number in range(MAX_BUDGETS)]


def _best_chains(point: BudgetPoint, costs: MixCosts) -> tuple[Fraction, Fraction | None]:
    """Return how often one certificate with all of δ admits a mix, and the best order.

    The order is None if no order admits any part of the mix.
    """
    counts = {order: admitted_mixes(point, only_order(order), costs) for order in costs.orders}
    order = max(counts, key=lambda order: (counts[order], order), default=None)
    best = Fraction(0) if order is None else counts[order]
    reserved = admitted_mixes(point, ((RESERVES, Fraction(1)),), costs)
    return max(best, reserved), order if best else None


def _splits(total: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to split a total into parts of at least 0, the largest first part first."""
    if count == 1:
        yield (total,)
        return
    for first in range(total, -1, -1):
        for rest in _splits(total - first, count - 1):
            yield first, *rest


def _with_shares(
    candidates: Sequence[Chain], split: Sequence[int]
) -> Iterator[tuple[Chain, Fraction]]:
    for chain, parts in zip(candidates, split, strict=True):
        if parts:
            yield chain, Fraction(parts, _PARTS)


def _round_up(value: Fraction) -> Fraction:
    """Return a number that is not negative to six significant digits."""
    if not value:
        return value
    digits = len(str(math.ceil(value))) if value >= 1 else -len(str(math.floor(1 / value))) + 1
    unit = Fraction(10) ** (digits - 6)
    return math.ceil(value / unit) * unit
