"""Attacks on filters with reserves: none exceeds δ, and each catches an unsound variant.

They are the attacks B to E of theory/reserves: optimal play against one reserve, randomized
response near the edge, two reserves without a split, and a reserve beside a Rényi order.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import mpmath as mp
import pytest
from tests.reference import reserve_adversary as adversary
from tests.reference.reserve_adversary import Move
from tests.reference.reserve_divergences import curve_of_atoms
from tests.reference.reserve_divergences import rare_jump as rare_atoms

from dpolicy.privacy.conversion import pure_to_mu_squared
from dpolicy.privacy.reserves.pure_cost import pure_reserve_cost
from dpolicy.privacy.reserves.quadrature import certified_costs
from dpolicy.privacy.reserves.reserve_limits import variance_within
from dpolicy.privacy.thresholds import anchor_order, conversion_cost

DELTA = 1e-7
STRENGTHS = (0.1, 0.2, 0.3, 0.5, 1.0)
RARE = tuple((p, t) for p in ("1e-2", "1e-4", "1e-6") for t in ("0.5", "1", "2"))


def admitted(epsilon: int, share: Fraction = Fraction(1)) -> float:
    """Return R as the code computes it, for a share of δ."""
    return variance_within(Fraction(epsilon), share * Fraction("1e-7")) / 1e12


def pure_cost(strength: float, reserve: float) -> float:
    return pure_reserve_cost(strength, reserve) if reserve else pure_to_mu_squared(strength)


@cache
def jump_cost(p: str, t: str, reserve: float) -> float:
    curve = curve_of_atoms(rare_atoms(mp.mpf(p), mp.mpf(t)))
    return certified_costs(curve, [reserve], 1e3)[0]


def responses(*reserves: float) -> list[Move]:
    return [adversary.response(s, [pure_cost(s, r) for r in reserves]) for s in STRENGTHS]


def jumps(reserve: float) -> list[Move]:
    costs = {(p, t): jump_cost(p, t, reserve) for p, t in RARE}
    return [
        adversary.rare_jump(float(p), float(t), (c,))
        for (p, t), c in costs.items()
        if not math.isinf(c)
    ]


def price_by_kl(moves: list[Move], certificates: int) -> list[Move]:
    """Return the moves with an unsound cost: the variance that small losses would have."""
    return [
        Move(m.probability, m.up, m.down, (adversary.twice_kl(m),) * certificates) for m in moves
    ]


@pytest.mark.parametrize(("epsilon", "reserve"), ((1, 0.004), (3, 0.016)))
def test_optimal_play_stays_within_delta(epsilon: int, reserve: float) -> None:
    limit, moves = admitted(epsilon) - reserve, [*responses(reserve), *jumps(reserve)]
    assert len(moves) > len(STRENGTHS)
    assert adversary.reached_delta(epsilon, [limit], moves, 1200) <= DELTA
    unsound = price_by_kl(moves, 1)
    assert adversary.reached_delta(epsilon, [limit], unsound, 1200) > 10 * DELTA


@pytest.mark.parametrize("epsilon", (1, 3, 10))
def test_a_response_near_the_edge_needs_the_reserve(epsilon: int) -> None:
    total, reserve = admitted(epsilon), 0.064 if epsilon == 10 else 0.016
    strengths = [0.03 * 1.2**n for n in range(14)]

    def cost(strength: float) -> float:
        return pure_cost(strength, reserve)

    assert adversary.best_strength(epsilon, total - reserve, cost, strengths) <= DELTA
    assert adversary.best_strength(epsilon, total, cost, strengths) > 1.03 * DELTA


@pytest.mark.parametrize("reserves", ((0.0, 0.064), (0.016, 0.064)))
def test_two_reserves_share_one_part_of_delta(reserves: tuple[float, float]) -> None:
    limits, moves = [admitted(3) - reserve for reserve in reserves], responses(*reserves)
    assert adversary.reached_delta(3, limits, moves, 120) <= DELTA
    unsound = price_by_kl([*moves, *jumps(reserves[1])], 2)
    assert adversary.reached_delta(3, limits, unsound, 120) > 10 * DELTA


@pytest.mark.parametrize("epsilon", (3, 10))
def test_a_reserve_beside_an_order_stays_within_delta(epsilon: int) -> None:
    """The split of δ is kept; that this attack does not need it proves nothing."""
    half = Fraction(1, 2)
    assert beside_an_order(epsilon, half, half) <= DELTA
    assert leak_beside(epsilon, half, half) <= DELTA
    # Canary: the reserves and the stated leaks both with all of δ.
    assert leak_beside(epsilon, Fraction(1), Fraction(1)) > 1.2 * DELTA


def beside_an_order(epsilon: int, for_reserve: Fraction, for_order: Fraction) -> float:
    """Return δ of a rare outcome, a Gaussian after it, and a jump within an order elsewhere."""
    order = anchor_order(Fraction(epsilon), Fraction("1e-7"))
    limit = epsilon - float(conversion_cost(order, Fraction("1e-7"), float(for_order)))
    reached = [0.0]
    for first, remaining in first_moves(epsilon, for_reserve):
        left = limit - adversary.renyi(float(order), first)
        for loss in (epsilon + 0.1, epsilon + 0.25, epsilon + 0.5):
            p = adversary.largest_jump(float(order), left, loss) if left > 0 else 0.0
            gain = max(-math.expm1(epsilon - loss - first.down), 0.0)
            elsewhere = (1 - first.probability) * p * gain
            reached.append(
                adversary.delta_with_a_rare_outcome(epsilon, first, remaining, elsewhere)
            )
    return max(reached)


def leak_beside(epsilon: int, for_reserve: Fraction, for_leaks: Fraction) -> float:
    """Return δ of a rare outcome, a Gaussian after it, and a stated leak elsewhere."""
    return max(
        adversary.delta_with_a_rare_outcome(
            epsilon, first, remaining, (1 - first.probability) * float(for_leaks) * DELTA
        )
        for first, remaining in first_moves(epsilon, for_reserve)
    )


def first_moves(epsilon: int, share: Fraction) -> list[tuple[Move, float]]:
    """Return rare jumps, each with the variance that a reserve leaves after it."""
    reserve = 0.016
    moves = [(move, admitted(epsilon, share) - reserve - move.costs[0]) for move in jumps(reserve)]
    return [(move, remaining) for move, remaining in moves if remaining > 0]
