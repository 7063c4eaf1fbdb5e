"""Edits of a release body that counter-offers propose."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from dpolicy.privacy.mechanisms.registry import MECHANISM_KINDS
from dpolicy.releases.body import Body


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
        fields = dict(request["mechanism"])
        kind = MECHANISM_KINDS[fields["kind"]]
        scalable = [name for name in kind.noise_parameters if name in fields]
        if not scalable or not kind.unscalable.isdisjoint(fields):
            return None
        for name in scalable:
            fields[name] = _scale_parameter(fields[name], factor, kind.noise_parameters[name])
        mechanisms.append({**request, "mechanism": fields})
    return {**body, "mechanisms": mechanisms}


def _scale_parameter(value: Fraction, factor: Fraction, exponent: int) -> Fraction:
    """Apply a noise factor to a parameter; round to 12 decimals towards more noise."""
    exact = value * factor**exponent
    rounded = math.floor(exact * 10**12) if exponent < 0 else math.ceil(exact * 10**12)
    return Fraction(rounded, 10**12)
