"""Naive spending: sum all recorded releases one by one, in every block, for any scope and unit.

The module works on the releases of `tests.reference.model`: each release keeps its meaning, a
predicate without an answer means "charged", and a release that the policy cannot resolve has no
bound. Losses are fractions at every order; nothing is grouped, cached by content or kept.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from tests.reference import model as naive
from tests.reference import recorded_release, rule_blocks
from tests.reference import rules as twin
from tests.reference.rule_blocks import Block, PlacedMechanism
from tests.reference.rules import Cost, Rule

from dpolicy.privacy.conversion import gaussian_to_epsilon, renyi_to_epsilon, zcdp_to_epsilon
from dpolicy.privacy.cost_report import DENSE_ORDERS


@dataclass(frozen=True)
class Charge:
    """A mechanism of a charged release, and its cost for the unit of the question."""

    release: str
    mechanism: PlacedMechanism
    cost: Cost


@dataclass(frozen=True)
class BlockSpending:
    """Charges of one block, and the other blocks with the same charges."""

    blocks: tuple[Block, ...]
    charges: tuple[Charge, ...]

    def total(self, key: twin.Key) -> Fraction | None:
        """Return the sum in one certificate; None if infinite."""
        return naive.total([charge.cost for charge in self.charges], key)

    @property
    def delta(self) -> Fraction:
        """Return the sum of the stated δ."""
        return sum((charge.cost[1] for charge in self.charges), Fraction(0))

    def epsilon(self, delta: Fraction) -> float:
        """Return the smallest ε at δ; infinite without a bound."""
        return epsilon([charge.cost for charge in self.charges], delta)


def spending_by_block(
    model: naive.Model, rule: Rule, chosen: Collection[str], *, has_balance: bool
) -> list[BlockSpending]:
    """Return the charges of the chosen releases to a scope in every block, smallest block first.

    `rule` has the predicates and the unit of the question. With `has_balance` it is a kept rule,
    which is also charged for the rules that it implies.
    """
    charged = [
        charge
        for release in chosen
        if model.releases[release].status in naive.COUNTED
        for charge in _charges(model, release, rule.unit)
        if (model.is_counted if has_balance else naive.may_match)(rule, charge.mechanism)
    ]
    groups: dict[tuple[bool, ...], list[Block]] = {}
    for block in rule_blocks.blocks(model.policy, rule, [c.mechanism for c in charged]):
        touched = tuple(rule_blocks.touches(charge.mechanism, block) for charge in charged)
        groups.setdefault(touched, []).append(block)
    return [
        BlockSpending(tuple(blocks), tuple(c for c, at in zip(charged, touched, strict=True) if at))
        for touched, blocks in groups.items()
    ]


def _charges(model: naive.Model, release: str, unit: str) -> Iterator[Charge]:
    past = model.releases[release]
    placed = model.charged_mechanisms(past)
    if any(mechanism.unknown for mechanism in placed):
        yield Charge(release, naive.EVERYTHING, naive.UNKNOWN)
        return
    owns = past.meaning or recorded_release.complete(model.policy, past.charged)
    period = model.policy["units"][unit].get("period")
    orders = frozenset({*DENSE_ORDERS, *naive.grid(model.policy)})
    for mechanism, entry, own in zip(placed, past.charged["mechanisms"], owns, strict=True):
        readable = recorded_release.known_part(model.policy, entry, own)
        steps = naive.steps(own, unit, period, readable)
        newest = twin.is_newest(model.policy)
        noise = dense_cost(entry["mechanism"], steps, orders, newest=newest)
        yield Charge(release, mechanism, noise)


def dense_cost(
    noise: naive.Body, k: int | None, orders: frozenset[Fraction], *, newest: bool
) -> Cost:
    """Return the cost of a group of k at many orders, in all of which it saturates."""
    amounts, delta = naive.cost(naive.text(noise), k, orders, newest)
    if "renyi" in noise and amounts:  # below its smallest order, a stated curve is flat
        two = Fraction(noise["renyi"]["2"])
        flat: dict[twin.Key, Fraction] = {
            order: ceil(two / twin.QUANTUM) * twin.QUANTUM for order in orders if order < 2
        }
        amounts = {**amounts, **flat}
    return {key: amount for key, amount in amounts.items() if amount < 2**20}, delta


def epsilon(costs: Sequence[Cost], delta: Fraction) -> float:
    """Return the smallest ε at δ over all certificates of a sum; infinite without a bound."""
    remaining = delta - sum((own for _, own in costs), Fraction(0))
    if remaining < 0:
        return math.inf
    keys = set.intersection(*({*amounts} for amounts, _ in costs)) if costs else {"pure"}
    epsilons = [math.inf]
    for key in keys:
        amount = naive.total(costs, key)
        if amount is None:
            continue
        if key == "pure":
            epsilons.append(float(amount))
        elif remaining and key == "rho":
            epsilons.append(zcdp_to_epsilon(amount, remaining))
        elif remaining and key == "mu":
            epsilons.append(gaussian_to_epsilon(math.sqrt(amount), remaining))
        elif remaining and isinstance(key, Fraction):
            epsilons.append(renyi_to_epsilon(key, amount, remaining))
    return min(epsilons)
