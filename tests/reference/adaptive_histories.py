"""Random adaptive histories that a filter admits, with the exact law of their outputs.

At each node the adversary draws a mechanism from the outputs so far and makes it as strong as the
filter of the budget admits, or leaves room for a later one. Two-point mechanisms branch; a Gaussian
or a leak ends a branch. The leaves are exact fractions.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tests.reference.adversary import TwoPoint
from tests.reference.attackers import Leaf

from dpolicy.privacy.budget import Budget
from dpolicy.privacy.certificates import Certificate, Notion, quanta_up
from dpolicy.privacy.conversion import pure_to_mu_squared, pure_to_zcdp
from dpolicy.privacy.loss import Certificates, Loss, add_losses, make_loss, zero_loss
from dpolicy.privacy.privacy_filter import is_within
from dpolicy.privacy.thresholds import DEFAULT_ORDERS, BudgetBound, Profile, bound_for_budget

_ABOVE = 1 + 1e-12


@dataclass(frozen=True)
class Adversary:
    """An adversary that runs at most `depth` mechanisms against the filter of a budget."""

    budget: Budget
    rng: random.Random
    depth: int = 2

    @cached_property
    def certificates(self) -> Certificates:
        """The certificates of the budget."""
        return tuple(sorted({c for clause in self.bound.clauses for c, _ in clause}))

    @cached_property
    def bound(self) -> BudgetBound:
        """The bound of the classic profile."""
        return bound_for_budget(self.budget, Profile.CLASSIC, DEFAULT_ORDERS)

    def play(self) -> list[Leaf]:
        """Return the leaves of one history."""
        root = Leaf(Fraction(1), Fraction(1))
        return self._branch(root, zero_loss(self.certificates), self.depth)

    def _branch(self, node: Leaf, spent: Loss, depth: int) -> list[Leaf]:
        if not depth:
            return [node]
        kind = self.rng.choice(("response", "jump", "gaussian", "leak"))
        share = self.rng.choice((1.0, 1.0, self.rng.random())) if depth > 1 else 1.0
        if kind == "leak":
            return self._leak(node, spent, depth)
        if kind == "gaussian":
            mu = share * self._largest(spent, self._gaussian_cost, 8.0)
            return [Leaf(node.p, node.q, Fraction(mu))]
        p = self.rng.uniform(0.05, 0.95) if kind == "jump" else None

        def cost(t: float) -> Loss:
            return self._cost(_two_point(p, t))

        t = share * self._largest(spent, cost, 12.0)
        if not t:
            return [node]
        after = add_losses(spent, cost(t))
        return [
            leaf
            for x, y in _exact_outcomes(_two_point(p, t))
            for leaf in self._branch(_child(node, x, y), after, depth - 1)
        ]

    def _leak(self, node: Leaf, spent: Loss, depth: int) -> list[Leaf]:
        """Reveal the data set with the rest of the δ-side, or with a part of it."""
        rest = (self.bound.delta or Fraction(0)) - spent.delta
        leak = rest * Fraction(self.rng.choice((1, 2)), 2)
        kept = _child(node, 1 - leak, 1 - leak)
        after = Loss(spent.certificates, spent.amounts, spent.delta + leak)
        leaves = [Leaf(node.p * leak, Fraction(0)), Leaf(Fraction(0), node.q * leak)]
        return [leaf for leaf in leaves if leaf.p or leaf.q] + self._branch(kept, after, depth - 1)

    def _largest(self, spent: Loss, cost: Callable[[float], Loss], top: float) -> float:
        """Return the largest strength that the filter admits."""
        low, high = 0.0, top
        for _ in range(24):
            middle = (low + high) / 2
            is_admitted = is_within(add_losses(spent, cost(middle)), self.bound)
            low, high = (middle, high) if is_admitted else (low, middle)
        return low

    def _cost(self, mechanism: TwoPoint) -> Loss:
        amounts = [quanta_up(Fraction(_amount(mechanism, c) * _ABOVE)) for c in self.certificates]
        return make_loss(self.certificates, amounts)

    def _gaussian_cost(self, mu: float) -> Loss:
        amounts = [_gaussian_amount(Fraction(mu), c) for c in self.certificates]
        return make_loss(self.certificates, [None if a is None else quanta_up(a) for a in amounts])


def _two_point(p: float | None, t: float) -> TwoPoint:
    """Return randomized response, or a mechanism whose first outcome has P = p."""
    return TwoPoint(1 / (1 + math.exp(-t)) if p is None else p, t)


def _exact_outcomes(mechanism: TwoPoint) -> list[tuple[Fraction, Fraction]]:
    """Return probabilities that sum to 1 exactly; the cost covers their rounding."""
    (p, q), _ = mechanism.outcomes
    return [(Fraction(p), Fraction(q)), (1 - Fraction(p), 1 - Fraction(q))]


def _child(node: Leaf, p: Fraction, q: Fraction) -> Leaf:
    return Leaf(node.p * p, node.q * q)


def _amount(mechanism: TwoPoint, certificate: Certificate) -> float:
    match certificate.notion:
        case Notion.PURE:
            return mechanism.pure
        case Notion.RHO:
            return pure_to_zcdp(mechanism.pure)
        case Notion.MU:
            return pure_to_mu_squared(mechanism.pure)
        case _:
            return mechanism.divergence(float(certificate.order))


def _gaussian_amount(mu: Fraction, certificate: Certificate) -> Fraction | None:
    match certificate.notion:
        case Notion.PURE:
            return None if mu else Fraction(0)
        case Notion.RHO:
            return mu * mu / 2
        case Notion.MU:
            return mu * mu
        case _:
            return certificate.order * mu * mu / 2
