"""How much of a round each strategy chooses, how far from the best it may be, and how long it is.

Rounds are drawn: 36 cost curves, runs of a partition, a few overlapping rules, and what a past that
differs from place to place has left. The same seed draws the same round.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.problem.knapsack import AllocationProblem, ConstraintRow
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.privacy.loss import INFINITE

ORDERS = np.array([1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 16, 32, 64, 1e6, 1e10])
QUANTUM = 1e-12
#: ε of the rule, the share of the candidates it speaks about.
RULES = ((10.0, 1.0), (6.0, 0.7), (3.0, 0.2), (3.0, 0.2), (4.0, 0.25), (3.0, 0.15))
UNLOCKED = (0.35, 0.7, 1.0)
SHARES = ((1, 10), (1, 10), (1, 0.5), (1, 0.5), (2, 2), (2, 2))


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Candidates: their curves, the slots they take, and what they are worth."""

    costs: NDArray[np.int64]
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    utilities: NDArray[np.float64]


def curves() -> NDArray[np.float64]:
    """6 mechanisms × 3 levels × sampled or not, at every order."""
    sigma = np.array([97.8, 25.8, 7.2, 97.8, 25.8, 7.2, 60, 16, 4.5])
    scale = np.array([100.0, 10, 4, 120, 12, 4.8, 140, 14, 5.6])
    gaussian = ORDERS / (2 * sigma[:, None] ** 2)
    laplace = np.minimum(1 / scale[:, None], ORDERS / (2 * scale[:, None] ** 2))
    whole = np.concatenate([gaussian[:3], laplace, gaussian[3:]])
    small = np.log1p(0.25 * np.expm1(np.minimum((ORDERS - 1) * whole, 500))) / (ORDERS - 1)
    sampled = np.where((ORDERS - 1) * whole < 500, small, whole)
    return np.concatenate([whole, np.minimum(sampled, whole)])


def asked(count: int, drawn: np.random.Generator) -> Asked:
    """Candidates like those of the paper's workload."""
    mechanism, level = drawn.integers(0, 6, count), drawn.integers(0, 3, count)
    sampled = drawn.integers(0, 2, count)
    shapes = np.array(SHARES)[mechanism]
    share = drawn.beta(shapes[:, 0], shapes[:, 1])
    start = drawn.random(count)
    worth = drawn.beta(0.25, 0.25, count) * np.array([0.05, 0.2, 0.75])[level] ** 2
    worth = np.maximum(1, np.rint(1000 * worth * np.where(sampled, 0.25, 1)))
    cost = curves()[mechanism * 3 + level + 18 * sampled]
    amounts = np.minimum(np.ceil(cost / QUANTUM), float(INFINITE)).astype(np.int64)
    delta = np.zeros((count, 1), np.int64)
    return Asked(np.hstack([amounts, delta]), start, start + share, worth)


def left(epsilon: float, drawn: np.random.Generator, places: int) -> NDArray[np.int64]:
    """places × ages × columns: what a past that differs from place to place left."""
    budget = epsilon - np.log(1e7) / (ORDERS - 1)
    past = curves()[drawn.integers(0, 36, (16, 6))]
    many = drawn.random((16, 6)) * epsilon / past[:, :, 8] / 30
    spent = np.einsum("pm,pmo->po", many, past)
    pieces = np.sort(drawn.integers(0, 16, places))
    ages = np.array(UNLOCKED)
    room = ages[None, :, None] * budget - ages[None, :, None] ** 2 * spent[pieces][:, None, :]
    amounts = np.where(room < 0, -1, np.floor(room / QUANTUM)).astype(np.int64)
    return np.concatenate([amounts, np.full((places, len(ages), 1), 10**11)], axis=2)


def pareto(vectors: NDArray[np.int64]) -> NDArray[np.int64]:
    """The vectors that no other one is at most as large as."""
    distinct = np.unique(vectors, axis=0)
    below: NDArray[np.bool_] = np.all(distinct[:, None] <= distinct[None], axis=2)
    np.fill_diagonal(below, False)
    return distinct[~below.any(axis=0)]


def contested(costs: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """The vectors into which not all fit."""
    total = np.minimum(costs.astype(np.float64).sum(axis=0), float(INFINITE))
    held: NDArray[np.bool_] = np.any(total[:-1] <= room[:, :-1], axis=1)
    return room[~held]


def rows(number: int, at: Asked, drawn: np.random.Generator, most: int) -> list[ConstraintRow]:
    """The contested segments of one rule."""
    epsilon, share = RULES[number]
    inside = np.flatnonzero(drawn.random(len(at.starts)) < share)
    bounds = np.unique(np.concatenate([at.starts[inside], at.ends[inside]]) % 1)
    points = bounds[np.linspace(0, len(bounds) - 1, min(most, len(bounds))).astype(np.intp)]
    rooms = left(epsilon, drawn, len(points))
    found = []
    for point, vectors in zip(points, rooms, strict=True):
        begun = np.where(at.starts[inside] <= point, point, point + 1)
        touched = inside[(at.starts[inside] <= begun) & (begun < at.ends[inside])]
        if len(touched):
            room = contested(at.costs[touched], pareto(vectors))
            if len(room):
                found.append(ConstraintRow(number, touched, touched, at.costs, room, False))
    return found


def drawn_round(count: int, most: int, seed: int) -> AllocationProblem:
    """A round of many candidates; at most some rows a rule."""
    drawn = np.random.default_rng(seed)
    at = asked(count, drawn)
    found = [row for number in range(len(RULES)) for row in rows(number, at, drawn, most)]
    ids = tuple(f"r{number}" for number in range(count))
    return AllocationProblem(ids, at.utilities, tuple(found), np.ones(count, dtype=np.bool_))


def table(problem: AllocationProblem, names: list[str]) -> None:
    """Print a line a strategy."""
    touches = sum(len(row.candidates) for row in problem.rows)
    print(f"{len(problem.ids):,} candidates, {len(problem.rows):,} rows, {touches:,} touches")
    print(f"{'strategy':<12}{'utility':>10}{'bound':>10}{'gap':>8}{'ms':>9}")
    for name in names:
        start = time.perf_counter()
        found = STRATEGIES[name](problem)
        lap = (time.perf_counter() - start) * 1e3
        worth, gap = found.utility(problem), found.gap(problem)
        print(f"{name:<12}{worth:>10,.0f}{found.bound:>10,.0f}{gap:>8.2%}{lap:>9,.0f}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(STRATEGIES))
    parser.add_argument("--large", action="store_true", help="5,000 candidates too")
    chosen = parser.parse_args()
    quick = [name for name in chosen.only if name != "exact"]
    table(drawn_round(100, 300, 0), chosen.only)
    for seed in range(chosen.seeds):
        table(drawn_round(500, 1000, seed), quick)
    if chosen.large:
        table(drawn_round(5000, 600, 0), quick)


if __name__ == "__main__":
    main()
