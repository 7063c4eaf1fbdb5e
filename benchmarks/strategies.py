"""Utility, gap and time of each strategy on random rounds.

A round has 36 cost curves, runs of a partition, a few overlapping rules, and a remaining budget
that differs from block to block. The same seed gives the same round.
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
#: ε of each rule, and the share of the candidates in its scope.
RULES = ((10.0, 1.0), (6.0, 0.7), (3.0, 0.2), (3.0, 0.2), (4.0, 0.25), (3.0, 0.15))
UNLOCKED = (0.35, 0.7, 1.0)
SHARES = ((1, 10), (1, 10), (1, 0.5), (1, 0.5), (2, 2), (2, 2))


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Costs, slots and utilities of candidates."""

    costs: NDArray[np.int64]
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    utilities: NDArray[np.float64]


def curves() -> NDArray[np.float64]:
    """Return 6 mechanisms × 3 levels × sampled or not, at every order."""
    sigma = np.array([97.8, 25.8, 7.2, 97.8, 25.8, 7.2, 60, 16, 4.5])
    scale = np.array([100.0, 10, 4, 120, 12, 4.8, 140, 14, 5.6])
    gaussian = ORDERS / (2 * sigma[:, None] ** 2)
    laplace = np.minimum(1 / scale[:, None], ORDERS / (2 * scale[:, None] ** 2))
    whole = np.concatenate([gaussian[:3], laplace, gaussian[3:]])
    small = np.log1p(0.25 * np.expm1(np.minimum((ORDERS - 1) * whole, 500))) / (ORDERS - 1)
    sampled = np.where((ORDERS - 1) * whole < 500, small, whole)
    return np.concatenate([whole, np.minimum(sampled, whole)])


def draw_candidates(count: int, rng: np.random.Generator) -> Candidates:
    """Draw candidates like those of the paper's workload."""
    mechanism, level = rng.integers(0, 6, count), rng.integers(0, 3, count)
    sampled = rng.integers(0, 2, count)
    shapes = np.array(SHARES)[mechanism]
    share = rng.beta(shapes[:, 0], shapes[:, 1])
    start = rng.random(count)
    utility = rng.beta(0.25, 0.25, count) * np.array([0.05, 0.2, 0.75])[level] ** 2
    utility = np.maximum(1, np.rint(1000 * utility * np.where(sampled, 0.25, 1)))
    cost = curves()[mechanism * 3 + level + 18 * sampled]
    amounts = np.minimum(np.ceil(cost / QUANTUM), float(INFINITE)).astype(np.int64)
    delta = np.zeros((count, 1), np.int64)
    return Candidates(np.hstack([amounts, delta]), start, start + share, utility)


def draw_remaining(epsilon: float, rng: np.random.Generator, point_count: int) -> NDArray[np.int64]:
    """Draw the remaining budget, points × ages × columns."""
    budget = epsilon - np.log(1e7) / (ORDERS - 1)
    past = curves()[rng.integers(0, 36, (16, 6))]
    counts = rng.random((16, 6)) * epsilon / past[:, :, 8] / 30
    spent = np.einsum("pm,pmo->po", counts, past)
    pieces = np.sort(rng.integers(0, 16, point_count))
    ages = np.array(UNLOCKED)
    room = ages[None, :, None] * budget - ages[None, :, None] ** 2 * spent[pieces][:, None, :]
    amounts = np.where(room < 0, -1, np.floor(room / QUANTUM)).astype(np.int64)
    return np.concatenate([amounts, np.full((point_count, len(ages), 1), 10**11)], axis=2)


def pareto(vectors: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the Pareto-minimal vectors."""
    distinct = np.unique(vectors, axis=0)
    below: NDArray[np.bool_] = np.all(distinct[:, None] <= distinct[None], axis=2)
    np.fill_diagonal(below, False)
    return distinct[~below.any(axis=0)]


def find_contested(costs: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the vectors into which the candidates do not all fit."""
    total = np.minimum(costs.astype(np.float64).sum(axis=0), float(INFINITE))
    all_fit: NDArray[np.bool_] = np.any(total[:-1] <= room[:, :-1], axis=1)
    return room[~all_fit]


def draw_rows(
    number: int, candidates: Candidates, rng: np.random.Generator, max_points: int
) -> list[ConstraintRow]:
    """Draw the constraint rows of one rule."""
    epsilon, share = RULES[number]
    inside = np.flatnonzero(rng.random(len(candidates.starts)) < share)
    bounds = np.unique(np.concatenate([candidates.starts[inside], candidates.ends[inside]]) % 1)
    points = bounds[np.linspace(0, len(bounds) - 1, min(max_points, len(bounds))).astype(np.intp)]
    rooms = draw_remaining(epsilon, rng, len(points))
    result = []
    for point, vectors in zip(points, rooms, strict=True):
        begun = np.where(candidates.starts[inside] <= point, point, point + 1)
        touched = inside[(candidates.starts[inside] <= begun) & (begun < candidates.ends[inside])]
        if len(touched):
            room = find_contested(candidates.costs[touched], pareto(vectors))
            if len(room):
                result.append(
                    ConstraintRow(number, touched, touched, candidates.costs, room, False)
                )
    return result


def draw_problem(count: int, max_points: int, seed: int) -> AllocationProblem:
    """Draw a round with at most `max_points` rows per rule."""
    rng = np.random.default_rng(seed)
    candidates = draw_candidates(count, rng)
    all_rows = [
        row
        for number in range(len(RULES))
        for row in draw_rows(number, candidates, rng, max_points)
    ]
    ids = tuple(f"r{number}" for number in range(count))
    return AllocationProblem(
        ids, candidates.utilities, tuple(all_rows), np.ones(count, dtype=np.bool_)
    )


def print_table(problem: AllocationProblem, names: list[str]) -> None:
    """Print one row per strategy."""
    touches = sum(len(row.candidates) for row in problem.rows)
    print(f"{len(problem.ids):,} candidates, {len(problem.rows):,} rows, {touches:,} touches")
    print(f"{'strategy':<12}{'utility':>10}{'bound':>10}{'gap':>8}{'ms':>9}")
    for name in names:
        start = time.perf_counter()
        solution = STRATEGIES[name](problem)
        milliseconds = (time.perf_counter() - start) * 1e3
        utility, gap = solution.utility(problem), solution.gap(problem)
        print(
            f"{name:<12}{utility:>10,.0f}{solution.bound:>10,.0f}{gap:>8.2%}{milliseconds:>9,.0f}"
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(STRATEGIES))
    parser.add_argument("--large", action="store_true", help="also run 5,000 candidates")
    options = parser.parse_args()
    quick = [name for name in options.only if name != "exact"]
    print_table(draw_problem(100, 300, 0), options.only)
    for seed in range(options.seeds):
        print_table(draw_problem(500, 1000, seed), quick)
    if options.large:
        print_table(draw_problem(5000, 600, 0), quick)


if __name__ == "__main__":
    main()
