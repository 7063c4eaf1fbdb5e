"""Loss runs: a mechanism as repeated draws from loss pairs, for a group of units.

A pair on a Poisson sample is amplified for one unit under add-remove (Zhu, Dong, Wang 2022,
Theorem 11). A group of sampled units, and any other relation, has the pair of the mechanism without
sampling, or the pair of its pure ε. Mechanisms of which only Rényi values or ρ are known have no
pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.certificates import inflate
from dpolicy.privacy.cost import single_run_bounds
from dpolicy.privacy.loss_distribution.loss_pairs import GeometricPair, LossPair
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.units.privacy_units import NeighbouringRelation


@dataclass(frozen=True, slots=True)
class LossRun:
    """`count` independent draws from a pair, each on a fresh Poisson sample if it has a rate.

    `leak` is the sum of the δ that all draws state.
    """

    pair: LossPair
    rate: Fraction | None
    count: int
    leak: Fraction


def loss_run(mechanism: Mechanism, k: int, relation: NeighbouringRelation) -> LossRun | None:
    """Return a mechanism as draws from a pair, for a group of `k` units; None without a pair."""
    bounds = single_run_bounds(mechanism, k, relation)
    leak = bounds.delta * mechanism.run_count
    rate: Fraction | None = None
    coordinates, pair = mechanism.loss_pair(k)
    if mechanism.is_sampled and relation is NeighbouringRelation.ADD_REMOVE:
        pure = bounds.pure
        if k == 1 and coordinates == 1:
            rate = mechanism.sampling_rate
        elif not math.isinf(pure):
            exact = inflate(pure) if isinstance(pure, float) else pure
            coordinates, pair = 1, GeometricPair(exact)
    if pair is None or leak >= 1:
        return None
    return LossRun(pair, rate, mechanism.run_count * coordinates, leak)
