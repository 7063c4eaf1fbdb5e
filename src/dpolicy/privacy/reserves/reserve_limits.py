"""Limits of reserves: the variance R that a part of δ admits (theory/reserves, 1 and 2).

R is the largest variance with G(R, ε) + τ·R ≤ mass. The certificate of the reserve r is kept below
R − r, and the certificate μ² below R; all of them share the one mass.
"""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from dpolicy.privacy.certificates import QUANTA_PER_UNIT, Certificate
from dpolicy.privacy.conversion import gaussian_log_delta, log_fraction
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.reserves.ladder import LADDER, LEAK_RATE, reserve_quanta

#: Exceeds the relative error of ε, of the variance, of G and of the sum with τ·R as floats.
LIMIT_ERROR = 2.0**-40

#: Quanta of one step of a displayed ε: the last digits of floats practically never change a step.
EPSILON_STEP = 1000

#: Significant digits of the mass and of ε that determine R.
_MASS_DIGITS, _EPSILON_DIGITS = 8, 12

#: Steps of regula falsi before bisection: nearly all searches take fewer.
MAX_SEARCH_STEPS = 24

_STEPS_PER_UNIT = QUANTA_PER_UNIT // EPSILON_STEP
_INFINITE_STEPS = INFINITE // EPSILON_STEP


def reserve_limits(epsilon: Fraction, mass: Fraction) -> tuple[tuple[Certificate, int], ...]:
    """Return the certificates of the ladder with their limits, in quanta, that are not negative."""
    total = variance_within(epsilon, mass)
    limits = ((certificate, total - reserve_quanta(certificate)) for certificate in LADDER)
    return tuple((certificate, limit) for certificate, limit in limits if limit >= 0)


@lru_cache(maxsize=4096)
def variance_within(epsilon: Fraction, mass: Fraction) -> int:
    """Return R in quanta, rounded down; −1 if no part of δ is left.

    It never falls as ε or the mass grows: `round_mass` rounds the mass, ε is rounded down to steps
    that are displayed exactly, and R grows by more than the errors of floats from one to the next.
    """
    if not mass:
        return -1
    steps = epsilon * QUANTA_PER_UNIT // EPSILON_STEP
    epsilon = _round_down(Fraction(steps * EPSILON_STEP, QUANTA_PER_UNIT), _EPSILON_DIGITS)
    log_mass = log_fraction(round_mass(mass))
    low, high = 0, 1
    while high < INFINITE and _is_within(high, float(epsilon), log_mass):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        is_within = _is_within(middle, float(epsilon), log_mass)
        low, high = (middle, high) if is_within else (low, middle)
    return low


@lru_cache(maxsize=65_536)
def smallest_epsilon(variance: int, log_mass: float) -> int:
    """Return, in quanta, the smallest ε at which a variance in quanta needs at most a part of δ.

    It is a whole number of steps; `INFINITE` if there is none. `log_mass` is the logarithm of the
    part. The compiled kernel has a quicker twin (`reserve_epsilon.pxi`).
    """
    if variance <= 0:
        return 0
    return INFINITE if variance >= INFINITE else _search(variance, log_mass) * EPSILON_STEP


def _search(variance: int, log_mass: float) -> int:
    """Return the smallest ε in steps."""
    low, high = 0, _STEPS_PER_UNIT
    above, below = _excess(variance, 0.0, log_mass), _excess(variance, 1.0, log_mass)
    if above <= 0:
        return 0
    while below > 0:
        low, above, high = high, below, 2 * high
        if high > _INFINITE_STEPS:
            return _INFINITE_STEPS
        below = _excess(variance, high / _STEPS_PER_UNIT, log_mass)
    was_above: bool | None = None
    steps = 0
    while high - low > 1:  # regula falsi; an end that stays twice counts half (Illinois)
        # Where the values are as small as rounding errors, bisection ends the search.
        share = above / (above - below) if steps < MAX_SEARCH_STEPS else 0.5
        steps += 1
        middle = min(max(low + math.ceil((high - low) * share), low + 1), high - 1)
        excess = _excess(variance, middle / _STEPS_PER_UNIT, log_mass)
        is_above = excess > 0
        if is_above:
            low, above = middle, excess
            below = below / 2 if was_above is True else below
        else:
            high, below = middle, excess
            above = above / 2 if was_above is False else above
        was_above = is_above
    return high


def round_mass(mass: Fraction) -> Fraction:
    """Return a part of δ, rounded down to the digits with which reserves use it."""
    return _round_down(mass, _MASS_DIGITS)


def _round_down(value: Fraction, digits: int) -> Fraction:
    """Return a number that is not negative, rounded down to significant digits."""
    with localcontext(Context(prec=digits, rounding=ROUND_FLOOR)):
        return Fraction(Decimal(value.numerator) / Decimal(value.denominator))


def _is_within(variance: int, epsilon: float, log_mass: float) -> bool:
    return _excess(variance, epsilon, log_mass) <= 0


def _excess(variance: int, epsilon: float, log_mass: float) -> float:
    """Return an upper bound of log(G(R, ε) + τ·R), minus that of the mass."""
    total = float(variance) / QUANTA_PER_UNIT * (1 + LIMIT_ERROR)
    reached = gaussian_log_delta(math.sqrt(total), epsilon * (1 - LIMIT_ERROR))
    leaked = math.log(LEAK_RATE * total)
    log_sum = max(reached, leaked) + math.log1p(math.exp(-abs(reached - leaked)))
    return log_sum + (abs(log_sum) + 1) * LIMIT_ERROR - log_mass + abs(log_mass) * LIMIT_ERROR
