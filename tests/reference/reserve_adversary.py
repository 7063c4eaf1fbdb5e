"""Adversaries against filters with reserves: optimal play by dynamic programming, and quadrature.

All losses are rounded against the adversary, to a lattice or to a cell of the budget, so that what
it reaches is a lower bound of what an adversary can reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@cache
def delta_at(variance: float, x: float) -> float:
    """Return G(s, x) for any real x, as a float."""
    if variance <= 0:
        return max(-math.expm1(x), 0.0)
    mu = math.sqrt(variance)
    first = math.erfc((x / mu - mu / 2) / math.sqrt(2)) / 2
    return first - math.exp(x) * math.erfc((x / mu + mu / 2) / math.sqrt(2)) / 2


def variance_at(delta: float, epsilon: float) -> float:
    """Return R with G(R, ε) = δ."""
    low, high = 1e-9, 100.0
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if delta_at(middle, epsilon) <= delta else (low, middle)
    return low


@dataclass(frozen=True)
class Move:
    """A mechanism with two outcomes: P of the first, both losses, and its cost per certificate."""

    probability: float
    up: float
    down: float
    costs: tuple[float, ...]


def response(epsilon: float, costs: Sequence[float]) -> Move:
    """Return randomized response."""
    return Move(1 / (1 + math.exp(-epsilon)), epsilon, -epsilon, tuple(costs))


def rare_jump(p: float, t: float, costs: Sequence[float]) -> Move:
    """Return a mechanism with a rare outcome of loss t."""
    return Move(p, t, math.log1p(-p) - math.log1p(-p * math.exp(-t)), tuple(costs))


def twice_kl(move: Move) -> float:
    """Return twice the larger KL divergence: the variance of small losses, and no sound cost."""
    p, q = move.probability, move.probability * math.exp(-move.up)
    forward = p * move.up + (1 - p) * move.down
    return 2 * max(forward, -(q * move.up + (1 - q) * move.down))


def reached_delta(
    epsilon: float, limits: Sequence[float], moves: Sequence[Move], cells: int, step: float = 0.05
) -> float:
    """Return the δ that the optimal adversary reaches against a union of one or two certificates.

    It may run any move while one certificate holds, and one Gaussian at the end.
    """
    cell = max(limits) / cells
    tops = [math.floor(limit / cell + 1e-9) for limit in limits]
    span = round((epsilon + 3) / step)
    losses = np.arange(-span, span + 1) * step
    ends = [np.array([delta_at(n * cell, epsilon - x) for x in losses]) for n in range(cells + 1)]
    steps = [
        (_shifts(move, step), [math.ceil(c / cell - 1e-9) for c in move.costs]) for move in moves
    ]
    values: dict[tuple[int, ...], Values] = {}

    def value(state: tuple[int, ...]) -> Values:
        rest = max(top - spent for top, spent in zip(tops, state, strict=True))
        best = ends[rest]
        for (probability, up, down), costs in steps:
            after = tuple(
                min(spent + c, top + 1) for spent, c, top in zip(state, costs, tops, strict=True)
            )
            if after in values:
                w = values[after]
                best = np.maximum(
                    best, probability * _moved(w, up) + (1 - probability) * _moved(w, down)
                )
        return best

    for state in _states(tops):
        values[state] = value(state)
    return float(values[(0,) * len(tops)][span])


def _shifts(move: Move, step: float) -> tuple[float, int, int]:
    return (
        move.probability,
        math.floor(move.up / step + 1e-9),
        math.floor(move.down / step + 1e-9),
    )


def _moved(values: Values, shift: int) -> Values:
    """Return values after a loss of so many steps; beyond the lattice, those of its ends."""
    numbers = np.clip(np.arange(len(values)) + shift, 0, len(values) - 1)
    moved: Values = values[numbers]
    return moved


def _states(tops: list[int]) -> Iterator[tuple[int, ...]]:
    """Yield the spent cells in which a certificate holds, those with more spent first."""
    for state in product(*(range(top + 1, -1, -1) for top in tops)):
        if any(spent <= top for spent, top in zip(state, tops, strict=True)):
            yield state


def delta_near_the_edge(epsilon: float, variance: float, cost: float, strength: float) -> float:
    """Return δ of a Gaussian, then randomized response if the loss is near ε.

    Elsewhere a Gaussian of the same cost runs.
    """
    deviation = math.sqrt(variance)
    losses = variance / 2 + deviation * np.linspace(-9, 9, 6001)
    densities = np.exp(-((losses - variance / 2) ** 2) / (2 * variance))
    densities /= densities.sum()
    truth = 1 / (1 + math.exp(-strength))

    def payoff(x: Values) -> Values:
        return np.maximum(-np.expm1(np.minimum(epsilon - x, 0.0)), 0.0)

    answered = truth * payoff(losses + strength) + (1 - truth) * payoff(losses - strength)
    smooth = np.array([delta_at(cost, epsilon - x) for x in losses])
    return float(densities @ np.maximum(answered, smooth))


def best_strength(
    epsilon: float,
    limit: float,
    cost_of: Callable[[float], float],
    strengths: Sequence[float],
) -> float:
    """Return the largest δ over the strengths of the last response."""
    return max(
        delta_near_the_edge(epsilon, limit - cost_of(s), cost_of(s), s)
        for s in strengths
        if limit - cost_of(s) > limit / 10
    )


def delta_with_a_rare_outcome(
    epsilon: float, first: Move, remaining: float, elsewhere: float
) -> float:
    """Return δ of a move, then a Gaussian after its first outcome; `elsewhere` is δ of the rest."""
    return first.probability * delta_at(remaining, epsilon - first.up) + elsewhere


def largest_jump(order: float, divergence: float, loss: float) -> float:
    """Return the largest P of a jump of this loss within a Rényi divergence, in both directions."""
    low, high = -60.0, math.log(0.99)
    for _ in range(60):
        middle = (low + high) / 2
        is_within = renyi(order, rare_jump(math.exp(middle), loss, ())) <= divergence
        low, high = (middle, high) if is_within else (low, middle)
    return math.exp(low)


def renyi(order: float, move: Move) -> float:
    """Return the Rényi divergence of a move, the larger of both directions."""
    p, q = move.probability, move.probability * math.exp(-move.up)
    pairs = ((p, q), (1 - p, 1 - q))
    forward = sum(x**order * y ** (1 - order) for x, y in pairs)
    backward = sum(y**order * x ** (1 - order) for x, y in pairs)
    return math.log(max(forward, backward)) / (order - 1)
