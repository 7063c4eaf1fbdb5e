"""Certified ε: an upper bound of the smallest ε at δ for mechanisms that are fixed in advance.

The bound is a guarantee for a list of mechanisms that does not depend on any output, such as all
mechanisms of one release. It is not a filter: an adaptive sequence can exceed it
(docs/theory/exact.md, counter-examples).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from dpolicy.privacy.conversion import gaussian_to_epsilon
from dpolicy.privacy.loss_distribution.fft_composition import ComposedLosses
from dpolicy.privacy.loss_distribution.loss_atoms import loss_atoms
from dpolicy.privacy.loss_distribution.loss_pairs import (
    GaussianPair,
    GeometricPair,
    LaplacePair,
    LossPair,
)
from dpolicy.privacy.loss_distribution.loss_run import LossRun
from dpolicy.privacy.loss_distribution.poisson_sampling import Direction, sample_atoms
from dpolicy.privacy.loss_distribution.tilted_window import (
    Draws,
    choose_tilt,
    compose_draws,
    log_moments,
)

#: A pair with its sampling rate, and the same with the number of draws.
SampledPair = tuple[LossPair, Fraction | None]
CountedPair = tuple[SampledPair, int]

#: Largest number of draws in all, and of different pairs. A larger list has no certified ε.
MAX_DRAWS = 2**22
MAX_PAIRS = 32

#: Sizes of the transforms, tried one after the other while the result improves.
SIZES = (2**13, 2**15, 2**17, 2**18)

#: Relative improvement below which no larger transform is tried.
CONVERGED = Fraction(1, 5000)

#: Significant digits of a certified ε, which is rounded up to them.
DIGITS = 6

#: Share of δ that pays for rare large losses, which then count as infinite.
TAIL_SHARE = 2.0**-10

#: Number of trials to certify an estimate.
_MAX_TRIALS = 8


def certified_epsilon(runs: Sequence[LossRun], delta: Fraction) -> Fraction | None:
    """Return an upper bound of ε at δ for all runs together; None if none can be computed.

    The stated δ of the runs are part of δ.
    """
    remaining = delta - sum((run.leak for run in runs), Fraction(0))
    if remaining < 0 or not runs:
        return None if runs else Fraction(0)
    counts: dict[SampledPair, int] = {}
    for run in runs:
        counts[run.pair, run.rate] = counts.get((run.pair, run.rate), 0) + run.count
    draws = tuple(sorted(_merge_gaussians(counts).items(), key=repr))
    return _certify(draws, remaining)


def _merge_gaussians(counts: Mapping[SampledPair, int]) -> dict[SampledPair, int]:
    """Replace all Gaussians without sampling by one: their μ² add up."""
    merged: dict[SampledPair, int] = {}
    mu_squared = Fraction(0)
    for (pair, rate), count in counts.items():
        if isinstance(pair, GaussianPair) and rate is None:
            mu_squared += pair.mu_squared * count
        else:
            merged[pair, rate] = count
    if mu_squared:
        merged[GaussianPair(mu_squared), None] = 1
    return merged


@lru_cache(maxsize=4096)
def _certify(draws: tuple[CountedPair, ...], delta: Fraction) -> Fraction | None:
    """Return the smallest of the closed form, the sum of pure ε, and the composed distributions."""
    pure = _pure_sum(draws)
    if not delta:
        return pure
    (pair, rate), _ = draws[0]
    if len(draws) == 1 and isinstance(pair, GaussianPair) and rate is None:
        mu = math.sqrt(pair.mu_squared) * (1 + 2.0**-50)
        return round_up(gaussian_to_epsilon(mu, delta))
    candidates = [] if pure is None else [pure]
    if len(draws) <= MAX_PAIRS and sum(count for _, count in draws) <= MAX_DRAWS:
        is_sampled = any(rate is not None for (_, rate), _ in draws)
        directions = tuple(Direction) if is_sampled else (Direction.REMOVE,)
        largest = [_certify_direction(draws, delta, direction) for direction in directions]
        bounds = [epsilon for epsilon in largest if epsilon is not None]
        if len(bounds) == len(directions):
            candidates.append(max(bounds))
    return min(candidates, default=None)


def _pure_sum(draws: Sequence[CountedPair]) -> Fraction | None:
    """Return the sum of pure ε, without amplification by sampling; None if one is infinite."""
    total = Fraction(0)
    for (pair, _), count in draws:
        match pair:
            case GeometricPair(step=step, shift=shift):
                total += step * shift * count
            case LaplacePair(epsilon=epsilon):
                total += epsilon * count
            case _:
                return None
    return total


def _certify_direction(
    draws: Sequence[CountedPair], delta: Fraction, direction: Direction
) -> Fraction | None:
    """Return a certified ε in one direction; None if a pair has no atoms, or if tails exceed δ."""
    parts: list[Draws] = []
    for (pair, rate), count in draws:
        atoms = loss_atoms(pair)
        if atoms is None:
            return None
        q = 1.0 if rate is None else math.nextafter(float(rate), 1.0)
        if q < 1:
            atoms = sample_atoms(atoms, q, direction)
        share = float(delta) * TAIL_SHARE / (count * len(draws))
        parts.append(Draws(atoms.cut_tail(share), count))
    infinite = sum(part.atoms.infinite * part.count for part in parts) * (1 + 2.0**-40)
    target = float(delta) * (1 - 2.0**-50) - infinite
    return _search(parts, target) if target > 0 else None


def _search(parts: Sequence[Draws], target: float) -> Fraction | None:
    """Return the smallest ε that one of the windows certifies."""
    moments = log_moments(parts)
    best: Fraction | None = None
    for size in SIZES:
        tilt = choose_tilt(moments, math.log(target), best)
        epsilon = smallest_epsilon(compose_draws(parts, tilt, size), target)
        if epsilon is None:
            continue
        is_converged = best is not None and epsilon >= best * (1 - CONVERGED)
        best = epsilon if best is None else min(best, epsilon)
        if is_converged or not best:
            break
    return best


def smallest_epsilon(composed: ComposedLosses, target: float) -> Fraction | None:
    """Return an ε, rounded up to `DIGITS`, at which δ is at most `target`; None without one.

    An estimate from running sums is certified by the sum at the rounded ε.
    """
    if composed.delta(0.0) <= target:
        return Fraction(0)
    estimate = composed.estimate_epsilon(target)
    for _ in range(_MAX_TRIALS):
        if estimate is None:
            return None
        epsilon = round_up(estimate)
        if composed.delta(float_below(epsilon)) <= target:
            return epsilon
        estimate = float(epsilon) * (1 + 10.0**-DIGITS)
    return None


def round_up(value: float) -> Fraction:
    """Return a float rounded up to `DIGITS` significant digits."""
    return Fraction(Decimal(value).normalize(Context(prec=DIGITS, rounding=ROUND_CEILING)))


def float_below(value: Fraction) -> float:
    """Return the largest float that is not above a fraction."""
    near = float(value)
    return math.nextafter(near, -math.inf) if Fraction(near) > value else near
