"""Edits of a release body that counter-offers propose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

from dpolicy.privacy.mechanisms.registry import MECHANISM_KINDS
from dpolicy.releases.body import Body

#: Significant digits of a noise parameter that a counter-offer names.
OFFER_DIGITS = 5


def without_mechanism(body: Body, position: int) -> dict[str, Any]:
    """Return the body without the mechanism at a position, counted from 0."""
    kept = [fields for i, fields in enumerate(body["mechanisms"]) if i != position]
    return {**body, "mechanisms": kept}


def without_attribute(body: Body, attribute: str) -> dict[str, Any]:
    """Return the body with an attribute removed from every mechanism."""
    mechanisms = [
        {**fields, "attributes": [n for n in fields.get("attributes", ()) if n != attribute]}
        for fields in body["mechanisms"]
    ]
    return {**body, "mechanisms": mechanisms}


def with_more_noise(body: Body, factor: Fraction) -> dict[str, Any] | None:
    """Return the body with all noise scaled, or None if a mechanism has no noise to scale."""
    mechanisms = []
    for request in body["mechanisms"]:
        if not has_noise(request):
            return None
        fields = dict(request["mechanism"])
        kind = MECHANISM_KINDS[fields["kind"]]
        for name in kind.noise_parameters.keys() & fields.keys():
            fields[name] = _scale_parameter(fields[name], factor, kind.noise_parameters[name])
        mechanisms.append({**request, "mechanism": fields})
    return {**body, "mechanisms": mechanisms}


def has_noise(request: Body) -> bool:
    """Return whether a mechanism of a body has noise that a factor can scale."""
    fields = request["mechanism"]
    kind = MECHANISM_KINDS[fields["kind"]]
    return not kind.noise_parameters.keys().isdisjoint(fields) and kind.unscalable.isdisjoint(
        fields
    )


def with_noise_factors(body: Body, factors: Sequence[Fraction | float]) -> dict[str, Any]:
    """Return the body with the noise of each mechanism scaled by its own factor.

    Restatements for other units are scaled too. A mechanism with the factor 1 stays as it is; every
    other parameter is rounded to `OFFER_DIGITS` significant digits towards more noise.
    """
    mechanisms = [
        request if factor == 1 else _scale_request(request, Fraction(factor))
        for request, factor in zip(body["mechanisms"], factors, strict=True)
    ]
    return {**body, "mechanisms": mechanisms}


def _scale_request(request: Body, factor: Fraction) -> dict[str, Any]:
    exponents = MECHANISM_KINDS[request["mechanism"]["kind"]].noise_parameters
    scaled = {**request, "mechanism": _scale_fields(request["mechanism"], factor, exponents)}
    if "also" in request:
        scaled["also"] = {
            unit: _scale_fields(fields, factor, exponents)
            for unit, fields in request["also"].items()
        }
    return scaled


def _scale_fields(
    fields: Body, factor: Fraction, exponents: Mapping[str, int]
) -> dict[str, object]:
    return {
        name: round_noise(value * factor ** exponents[name], exponents[name])
        if name in exponents
        else value
        for name, value in fields.items()
    }


def round_noise(value: Fraction, exponent: int) -> Fraction:
    """Round a noise parameter to `OFFER_DIGITS` significant digits, towards more noise."""
    rounding = ROUND_FLOOR if exponent < 0 else ROUND_CEILING
    context = Context(prec=OFFER_DIGITS, rounding=rounding)
    return Fraction(context.divide(Decimal(value.numerator), Decimal(value.denominator)))


def _scale_parameter(value: Fraction, factor: Fraction, exponent: int) -> Fraction:
    """Apply a noise factor to a parameter; round to 12 decimals towards more noise."""
    exact = value * factor**exponent
    rounded = math.floor(exact * 10**12) if exponent < 0 else math.ceil(exact * 10**12)
    return Fraction(rounded, 10**12)


def total_variance(body: Body) -> float:
    """Return the sum of the noise variances of all mechanisms, with a sensitivity of 1 for losses.

    A stated loss counts as the noise that gives it: Laplace noise for ε, Gaussian noise for ρ and
    μ. A mechanism without noise parameters counts as 0.
    """
    return math.fsum(noise_variance(request["mechanism"]) for request in body["mechanisms"])


def noise_variance(fields: Body) -> float:
    """Return the noise variance of one mechanism; 0 if it has no noise parameter."""
    exponents = MECHANISM_KINDS[fields["kind"]].noise_parameters
    return math.fsum(
        _VARIANCE_FACTORS.get(name, 1.0) * _clip(float(fields[name])) ** (2 / exponent)
        for name, exponent in exponents.items()
        if fields.get(name)
    )


def _clip(value: float) -> float:
    """Return a number whose square and whose inverse square are floats."""
    return min(max(value, 1e-100), 1e100)


#: Variance of noise of scale 1, by the parameter that states the scale; 1 for a σ. A ρ is 1/(2σ²).
_VARIANCE_FACTORS = {"scale": 2.0, "epsilon": 2.0, "rho": 0.5}


def mechanism_names(body: Body) -> tuple[str, ...]:
    """Return a distinct name for each mechanism: its own, or its position if names repeat."""
    positions = [f"mechanism {n}" for n in range(1, len(body["mechanisms"]) + 1)]
    names = [
        fields.get("name", position)
        for fields, position in zip(body["mechanisms"], positions, strict=True)
    ]
    return tuple(names if len(set(names)) == len(names) else positions)


#: A changed number by its parameter; `also` has those of the restatements, by unit.
Changes = dict[str, Any]


def changed_parameters(before: Body, after: Body) -> dict[str, Changes]:
    """Return the parameters that differ between two bodies, by the name of the mechanism.

    Parameters of restatements are under `also`, by unit.
    """
    changes: dict[str, Changes] = {}
    pairs = zip(before["mechanisms"], after["mechanisms"], strict=True)
    for name, (old, new) in zip(mechanism_names(before), pairs, strict=True):
        different = _different_values(old["mechanism"], new["mechanism"])
        stated = old.get("also", {})
        restated = {
            unit: _different_values(stated.get(unit, {}), fields)
            for unit, fields in new.get("also", {}).items()
        }
        if any(restated.values()):
            different["also"] = {unit: values for unit, values in restated.items() if values}
        if different:
            changes[name] = different
    return changes


def _different_values(before: Body, after: Body) -> Changes:
    return {key: value for key, value in after.items() if value != before.get(key)}
