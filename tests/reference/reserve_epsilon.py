"""Naive twin of the displayed ε of reserves: bisection over whole steps."""

from __future__ import annotations

import mpmath as mp
from tests.reference.divergences import Real

from dpolicy.privacy.certificates import FLOAT_ERROR, QUANTA_PER_UNIT
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.normal_distribution import TAIL_ERROR
from dpolicy.privacy.reserves.ladder import LEAK_RATE
from dpolicy.privacy.reserves.reserve_limits import EPSILON_STEP, LIMIT_ERROR, _excess


def bisect_epsilon(variance: int, log_mass: float, error: float = 0.0) -> int:
    """Return the smallest ε in quanta that admits a variance; `error` is added to the excess."""
    if variance <= 0 or variance >= INFINITE:
        return min(max(variance, 0), INFINITE)
    low, high = -1, INFINITE // EPSILON_STEP
    while high - low > 1:
        middle = (low + high) // 2
        epsilon = middle / (QUANTA_PER_UNIT // EPSILON_STEP)
        is_within = _excess(variance, epsilon, log_mass) + error <= 0
        low, high = (low, middle) if is_within else (middle, high)
    return high * EPSILON_STEP


def precise_excess(variance: int, step: int, log_mass: float) -> Real:
    """Return `_excess` at a number of steps, with all its margins, in 50 digits."""
    total = mp.mpf(variance) / QUANTA_PER_UNIT * (1 + mp.mpf(LIMIT_ERROR))
    epsilon = mp.mpf(step * EPSILON_STEP) / QUANTA_PER_UNIT * (1 - mp.mpf(LIMIT_ERROR))
    mu, error = mp.sqrt(total), mp.mpf(TAIL_ERROR)
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    tails, density = [mp.erfc(x / mp.sqrt(2)) / 2 for x in (a, b)], mp.npdf(a)
    other = tails[1] * density / mp.npdf(b)
    if a < 0:
        reached = mp.log(tails[0] * (1 + error) - other * (1 - 4 * error))
    else:
        gap = (tails[0] * (1 + error) - other * (1 - error)) / density
        reached = mp.log(density) * (1 - mp.mpf(float(FLOAT_ERROR))) + mp.log(gap)
    log_sum = mp.log(mp.exp(reached) + mp.mpf(LEAK_RATE) * total)
    raised = log_sum + (abs(log_sum) + 1) * LIMIT_ERROR
    return raised - log_mass + abs(mp.mpf(log_mass)) * LIMIT_ERROR
