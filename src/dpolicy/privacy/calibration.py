"""Noise calibration: the smallest noise with which a mechanism meets a target (ε, δ).

Every curve falls as the noise grows, so bisection finds the smallest noise that meets the target.
The result is rounded up to twelve digits and is verified to meet the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.errors import InvalidValue
from dpolicy.privacy.cost_report import report_costs
from dpolicy.privacy.mechanisms.cost_rules import NEWEST_RULES
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

#: Smallest and largest noise of a search.
SMALLEST_NOISE, LARGEST_NOISE = Fraction(1, 10**6), Fraction(10**9)


@dataclass(frozen=True, slots=True)
class NoiseInterval:
    """Result of a search: the smallest noise that is enough, and the largest that is too little.

    `too_little` is None if the smallest noise of the search is enough.
    """

    too_little: Fraction | None
    enough: Fraction


def calibrate_noise(
    kind: str, fields: Mapping[str, object], epsilon: Fraction, delta: Fraction
) -> tuple[float, float]:
    """Return the smallest noise for (ε, δ), rounded up, and the ε that it reaches.

    `fields` are the other parameters of the mechanism. Raise `InvalidValue` if they are invalid, or
    if no noise meets the target (M019).
    """

    def epsilon_with(noise: Fraction) -> float | None:
        return smallest_epsilon({**fields, "kind": kind, CALIBRATED_PARAMETERS[kind]: noise}, delta)

    def is_enough(noise: Fraction) -> bool:
        reached = epsilon_with(noise)
        return reached is not None and reached <= epsilon

    interval = search_noise(is_enough)
    reached = None if interval is None else epsilon_with(interval.enough)
    if interval is None or reached is None:
        raise unreachable_target_error(kind, epsilon)
    return float(interval.enough), reached


def search_noise(is_enough: Callable[[Fraction], bool]) -> NoiseInterval | None:
    """Return the smallest noise that is enough, to `DIGITS` digits; None if there is none.

    More noise than enough must be enough too. The result was tried: where that fails, it is still a
    noise that is enough.
    """
    too_little, enough = None, SMALLEST_NOISE
    while not is_enough(enough):
        if enough == LARGEST_NOISE:
            return None
        too_little, enough = enough, min(enough * 4, LARGEST_NOISE)
    if too_little is None:
        return NoiseInterval(None, enough)
    for _ in range(80):
        middle = _round_up((too_little + enough) / 2)
        if not too_little < middle < enough:
            break
        if is_enough(middle):
            enough = middle
        else:
            too_little = middle
    return NoiseInterval(too_little, enough)


def unreachable_target_error(kind: str, epsilon: Fraction) -> InvalidValue:
    """Return the error for a target that no noise meets."""
    return InvalidValue("M019", f"no noise of `{kind}` meets ε {format_down(epsilon)} at this δ")


def smallest_epsilon(fields: Mapping[str, object], delta: Fraction) -> float | None:
    """Return the smallest known ε of a mechanism alone, under add-remove for its unit.

    Raise `InvalidValue` with the first problem of its parameters.
    """
    mechanism, problems = parse_mechanism(fields)
    if mechanism is None:
        raise problems[0]
    relation = NeighbouringRelation.ADD_REMOVE
    units = (PrivacyUnit("user", "user", None, relation),)
    context = GroupContext(units, rules=NEWEST_RULES)
    return report_costs(mechanism, 0, {}, relation, context, ())[0].epsilon(delta)


def _round_up(value: Fraction) -> Fraction:
    """Round up to `DIGITS` significant digits."""
    decimals = DIGITS - math.floor(math.log10(value)) - 1
    scale = Fraction(10) ** decimals
    return math.ceil(value * scale) / scale
