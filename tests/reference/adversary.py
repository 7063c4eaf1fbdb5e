"""Adaptive adversary against a filter, and the exact δ that it reaches (theory 2.3, T2).

The adversary runs one mechanism, reads the outcome, and then runs the worst second mechanism that
the filter still admits on that branch. All mechanisms have two outcomes: P(hit) = p,
Q(hit) = p·e^(−t). All outcomes are enumerated, so the δ at the budget's ε is exact up to rounding.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.certificates import PURE, Notion, quanta_up
from dpolicy.privacy.loss import Certificates, Loss, add_losses, make_loss
from dpolicy.privacy.privacy_filter import is_within
from dpolicy.privacy.thresholds import BudgetBound


@dataclass(frozen=True)
class TwoPoint:
    """A mechanism with two outcomes, on neighbouring databases."""

    p: float
    t: float

    @property
    def outcomes(self) -> list[tuple[float, float]]:
        """Return the probabilities of each outcome on both databases."""
        q = self.p * math.exp(-self.t)
        return [(self.p, q), (1 - self.p, 1 - q)]

    def divergence(self, order: float) -> float:
        """Return the Rényi divergence, the larger of both directions."""
        return max(
            _divergence(self.outcomes, order), _divergence(_swap_databases(self.outcomes), order)
        )

    @property
    def pure(self) -> float:
        """Return the largest log-ratio."""
        return max(abs(math.log(a / b)) for a, b in self.outcomes)

    def cost(self, certificates: Certificates) -> Loss:
        """Return the loss, rounded up to quanta."""
        values = [self.pure if c == PURE else self.divergence(float(c.order)) for c in certificates]
        return make_loss(certificates, [quanta_up(Fraction(v * (1 + 1e-12))) for v in values])


def _swap_databases(outcomes: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(b, a) for a, b in outcomes]


def _divergence(outcomes: list[tuple[float, float]], order: float) -> float:
    terms = [order * math.log(a) + (1 - order) * math.log(b) for a, b in outcomes]
    top = max(terms)
    total = sum(math.exp(term - top) for term in terms)
    return max(0.0, (top + math.log(total)) / (order - 1))


@dataclass(frozen=True)
class Strategy:
    """Strategy: the first mechanism; for each of its outcomes a clause, a t and a leak."""

    first: TwoPoint
    clause_numbers: tuple[int, int]
    second_t: tuple[float, float]
    leaks: tuple[float, float]


@dataclass(frozen=True)
class Filter:
    """The filter under attack."""

    epsilon: Fraction
    bound: BudgetBound

    @property
    def certificates(self) -> Certificates:
        return tuple(clause[0][0] for clause in self.bound.clauses)


def reached_delta(strategy: Strategy, target: Filter) -> float:
    """Return the exact δ at ε of an adaptive composition in which the filter admits each step."""
    certificates = target.certificates
    within = target.bound
    spent = strategy.first.cost(certificates)
    if not is_within(spent, within):
        return 0.0
    total, scale = 0.0, math.exp(float(target.epsilon))
    for outcome, number, t, leak in zip(
        strategy.first.outcomes,
        strategy.clause_numbers,
        strategy.second_t,
        strategy.leaks,
        strict=True,
    ):
        leaked = float(target.bound.delta or 0) * leak
        second = _largest_mechanism(spent, certificates, number, t, target.bound)
        if second is not None and not _is_admitted(spent, second, leaked, certificates, within):
            second = None
        total += _leaf_sum(outcome, second, leaked, scale)
    return total


def _is_admitted(
    spent: Loss, second: TwoPoint, leaked: float, certificates: Certificates, within: BudgetBound
) -> bool:
    cost = second.cost(certificates)
    leaking = Loss(cost.certificates, cost.amounts, Fraction(leaked))
    return is_within(add_losses(spent, leaking), within)


def _leaf_sum(
    outcome: tuple[float, float], second: TwoPoint | None, leaked: float, scale: float
) -> float:
    """Return Σ (P − e^ε Q)₊ over the leaves of a branch; a leak has Q = 0."""
    p, q = outcome
    leaves = second.outcomes if second else [(1.0, 1.0)]
    kept = 1 - leaked
    hidden = sum(max(p * a * kept - scale * q * b * kept, 0.0) for a, b in leaves)
    return p * leaked + hidden


def _largest_mechanism(
    spent: Loss, certificates: Certificates, number: int, t: float, bound: BudgetBound
) -> TwoPoint | None:
    """Return the two-point mechanism with the largest p within the chosen certificate."""
    certificate, limit = bound.clauses[number][0]
    room = (limit - spent.amounts[number] - 2) / 10**12

    def fits(log_p: float) -> bool:
        mechanism = TwoPoint(math.exp(log_p), t)
        value = (
            mechanism.pure
            if certificate.notion is Notion.PURE
            else mechanism.divergence(float(certificate.order))
        )
        return value * (1 + 2e-12) <= room

    low, high = -40.0, math.log(0.999)
    if room <= 0 or not fits(low):
        return None
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return TwoPoint(math.exp(low), t)


def attack(target: Filter, seed: int, steps: int) -> float:
    """Return the largest δ that hill climbing reaches from random strategies."""
    rng = random.Random(seed)
    clause_count = len(target.bound.clauses)

    def random_strategy() -> Strategy:
        return Strategy(
            TwoPoint(math.exp(-rng.uniform(0.5, 16)), rng.uniform(0.1, 3)),
            (rng.randrange(clause_count), rng.randrange(clause_count)),
            (rng.uniform(0.1, 6), rng.uniform(0.1, 6)),
            (rng.choice((0.0, 1.0)), rng.choice((0.0, 1.0))),
        )

    best, value = random_strategy(), 0.0
    overall = 0.0
    for step in range(steps):
        if step % 120 == 0:
            best, value = random_strategy(), 0.0
        trial = _perturb(best, rng, clause_count)
        delta = reached_delta(trial, target)
        if delta >= value:
            best, value = trial, delta
        overall = max(overall, value)
    return overall


def _perturb(strategy: Strategy, rng: random.Random, clause_count: int) -> Strategy:
    """Return a strategy that differs in one choice."""
    shift: Callable[[float], float] = lambda x: x * math.exp(rng.gauss(0, 0.15))  # noqa: E731
    clause_numbers = tuple(
        rng.randrange(clause_count) if rng.random() < 0.1 else number
        for number in strategy.clause_numbers
    )
    return Strategy(
        TwoPoint(min(0.9, shift(strategy.first.p)), shift(strategy.first.t)),
        (clause_numbers[0], clause_numbers[1]),
        (shift(strategy.second_t[0]), shift(strategy.second_t[1])),
        strategy.leaks,
    )
