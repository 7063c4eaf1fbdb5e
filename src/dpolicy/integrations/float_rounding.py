"""A float of a library → the exact decimal that a release states, rounded against the spender.

Libraries keep losses and noise as binary floats. A loss is rounded up and noise down, to 15 digits,
so that what is stated is never better than what was computed.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction

from dpolicy.errors import InvalidValue
from dpolicy.privacy.mechanisms.parameters import SMALLEST

_DIGITS = 15
_UP, _DOWN = (Context(prec=_DIGITS, rounding=way) for way in (ROUND_CEILING, ROUND_FLOOR))


def round_up(value: float) -> Fraction:
    """A decimal that is no smaller: for losses, sensitivities, sampling rates and δ."""
    return Fraction(_UP.create_decimal(_finite(value)))


def round_down(value: float) -> Fraction:
    """A decimal that is no larger: for noise."""
    return Fraction(_DOWN.create_decimal(_finite(value)))


def round_loss_up(value: float) -> Fraction:
    """A loss as it is stated: rounded up, and never so small that a release cannot say it."""
    if value < 0:
        raise InvalidValue("M005", f"a loss of `{value}` cannot be meant")
    return max(round_up(value), SMALLEST)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise InvalidValue("M006", f"`{value}` is not a finite number")
    return float(value)
