"""Noise calibration: the smallest noise with which a mechanism meets a target (ε, δ).

Every curve falls as the noise grows, so bisection finds the smallest noise that meets the target.
The result is rounded up to twelve digits and is verified to meet the target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from dpolicy.errors import InvalidValue
from dpolicy.privacy.cost_report import report_costs
from dpolicy.privacy.mechanisms.registry import MECHANISM_KINDS, parse_mechanism
from dpolicy.privacy.number_text import format_down
from dpolicy.privacy.units.group_privacy import GroupContext
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit

#: The noise parameter of every kind that can be calibrated.
CALIBRATED_PARAMETERS: Mapping[str, str] = {
    name: kind.calibrated for name, kind in MECHANISM_KINDS.items() if kind.calibrated is not None
}

#: Digits of the result; more would claim a precision that no noise sampler has.
DIGITS = 12

_USER = PrivacyUnit("user", "user", None, NeighbouringRelation.ADD_REMOVE)
_CONTEXT = GroupContext((_USER,))


def calibrate_noise(
    kind: str, fields: Mapping[str, object], epsilon: Fraction, delta: Fraction
) -> tuple[float, float]:
    """Return the smallest noise for (ε, δ), rounded up, and the ε that it reaches.

    `fields` are the other parameters of the mechanism. Raise `InvalidValue` if they are invalid, or
    if no noise meets the target (M019).
    """
    low, high = Fraction(1, 10**6), Fraction(1, 10**6)
    while not _meets(kind, fields, high, epsilon, delta):
        low, high = high, high * 4
        if high > 10**8:
            raise InvalidValue(
                "M019", f"no noise of `{kind}` meets ε {format_down(epsilon)} at this δ"
            )
    for _ in range(80):
        middle = _round_up((low + high) / 2)
        if not low < middle < high:
            break
        if _meets(kind, fields, middle, epsilon, delta):
            high = middle
        else:
            low = middle
    reached = _epsilon(kind, fields, high, delta)
    if reached is None:
        raise InvalidValue("M019", f"no noise of `{kind}` meets ε {format_down(epsilon)} at this δ")
    return float(high), reached


def _meets(
    kind: str, fields: Mapping[str, object], noise: Fraction, epsilon: Fraction, delta: Fraction
) -> bool:
    reached = _epsilon(kind, fields, noise, delta)
    return reached is not None and reached <= epsilon


def _epsilon(
    kind: str, fields: Mapping[str, object], noise: Fraction, delta: Fraction
) -> float | None:
    stated = {**fields, "kind": kind, CALIBRATED_PARAMETERS[kind]: noise}
    mechanism, problems = parse_mechanism(stated)
    if mechanism is None:
        raise problems[0]
    return report_costs(mechanism, 0, {}, _USER.relation, _CONTEXT, ())[0].epsilon(delta)


def _round_up(value: Fraction) -> Fraction:
    """Round up to `DIGITS` significant digits."""
    decimals = DIGITS - math.floor(math.log10(value)) - 1
    scale = Fraction(10) ** decimals
    return math.ceil(value * scale) / scale
