"""A target (ε, δ) → the least noise with which a mechanism meets it, found by bisection.

Every curve falls as the noise grows, so the noise that just fits is found between one that does not
fit and one that does; what is returned is checked to fit, and is rounded up to twelve digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from dpolicy.errors import InvalidValue
from dpolicy.privacy.cost_report import report_costs
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.units.group_privacy import GroupContext, no_covers
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit

#: The parameter that says how much noise there is, by kind of mechanism.
NOISE = {
    "gaussian": "sigma",
    "discrete-gaussian": "sigma",
    "laplace": "scale",
    "discrete-laplace": "scale",
    "dp-sgd": "noise-multiplier",
    "tree-aggregation": "noise-multiplier",
    "pate": "sigma",
}

#: Digits of the answer; more would claim a precision that no noise sampler has.
DIGITS = 12

_USER = PrivacyUnit("user", "user", None, NeighbouringRelation.ADD_REMOVE)
_SETTING = GroupContext((_USER,), False, None, no_covers)


def calibrate_noise(
    kind: str, fields: Mapping[str, object], epsilon: Fraction, delta: Fraction
) -> tuple[float, float]:
    """The least noise for (ε, δ), rounded up, and the ε that it reaches."""
    low, high = Fraction(1, 10**6), Fraction(1, 10**6)
    while not _meets(kind, fields, high, epsilon, delta):
        low, high = high, high * 4
        if high > 10**8:
            raise InvalidValue("M019", f"no noise of `{kind}` meets ε {float(epsilon):g} at this δ")
    for _ in range(80):
        middle = _rounded_up((low + high) / 2)
        if not low < middle < high:
            break
        if _meets(kind, fields, middle, epsilon, delta):
            high = middle
        else:
            low = middle
    reached = _epsilon(kind, fields, high, delta)
    if reached is None:
        raise InvalidValue("M019", f"no noise of `{kind}` meets ε {float(epsilon):g} at this δ")
    return float(high), reached


def _meets(
    kind: str, fields: Mapping[str, object], noise: Fraction, epsilon: Fraction, delta: Fraction
) -> bool:
    reached = _epsilon(kind, fields, noise, delta)
    return reached is not None and reached <= epsilon


def _epsilon(
    kind: str, fields: Mapping[str, object], noise: Fraction, delta: Fraction
) -> float | None:
    mechanism, problems = parse_mechanism({**fields, "kind": kind, NOISE[kind]: noise})
    if mechanism is None:
        raise problems[0]
    return report_costs(mechanism, 0, {}, _USER.relation, _SETTING, ())[0].epsilon(delta)


def _rounded_up(value: Fraction) -> Fraction:
    """To so many significant digits, never below."""
    places = DIGITS - math.floor(math.log10(value)) - 1
    scale = Fraction(10) ** places
    return math.ceil(value * scale) / scale
