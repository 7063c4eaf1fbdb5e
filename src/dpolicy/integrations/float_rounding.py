"""Conversion of a library's floats to exact decimals, rounded so that the charge never shrinks.

Libraries keep losses and noise as binary floats. Losses are rounded up and noise is rounded down,
to 15 digits, so a release never states less loss or more noise than the library computed.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction
from typing import Any

from dpolicy.errors import InvalidValue
from dpolicy.privacy.mechanisms.parameters import SMALLEST

_DIGITS = 15
_UP = Context(prec=_DIGITS, rounding=ROUND_CEILING)
_DOWN = Context(prec=_DIGITS, rounding=ROUND_FLOOR)


def round_up(value: float) -> Fraction:
    """Return a decimal ≥ value: for losses, sensitivities, sampling rates and δ."""
    return Fraction(_UP.create_decimal(_require_finite(value)))


def round_down(value: float) -> Fraction:
    """Return a decimal ≤ value: for noise."""
    return Fraction(_DOWN.create_decimal(_require_finite(value)))


def round_loss_up(value: float) -> Fraction:
    """Round a loss up to a decimal, and at least to the smallest loss that a release can state."""
    if value < 0:
        raise InvalidValue("M005", f"a loss must not be negative, got `{value}`")
    return max(round_up(value), SMALLEST)


def epsilon_delta_mechanism(epsilon: float, delta: float) -> dict[str, Any]:
    """Return a `declared` mechanism with ε and, if it is not 0, δ; both are rounded up."""
    mechanism = {"kind": "declared", "epsilon": round_loss_up(epsilon)}
    return {**mechanism, "delta": round_up(delta)} if delta else mechanism


def _require_finite(value: float) -> float:
    if not math.isfinite(value):
        raise InvalidValue("M006", f"`{value}` is not a finite number")
    return float(value)
