"""Edits of a release body that counter-offers propose."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from dpolicy.privacy.mechanisms.registry import MECHANISM_KINDS
from dpolicy.releases.body import Body


def without_mechanism(body: Body, position: int) -> dict[str, Any]:
    """The body with one mechanism left out."""
    kept = [said for number, said in enumerate(body["mechanisms"]) if number != position]
    return {**body, "mechanisms": kept}


def without_attribute(body: Body, attribute: str) -> dict[str, Any]:
    """The body in which no mechanism uses an attribute."""
    mechanisms = [
        {**said, "attributes": [name for name in said.get("attributes", ()) if name != attribute]}
        for said in body["mechanisms"]
    ]
    return {**body, "mechanisms": mechanisms}


def with_more_noise(body: Body, factor: Fraction) -> dict[str, Any] | None:
    """The body with all noise scaled, or None if some mechanism's noise cannot be scaled."""
    mechanisms = []
    for said in body["mechanisms"]:
        fields = dict(said["mechanism"])
        kind = MECHANISM_KINDS[fields["kind"]]
        scalable = [name for name in kind.noise_parameters if name in fields]
        if not scalable or not kind.unscalable.isdisjoint(fields):
            return None
        for name in scalable:
            fields[name] = _scaled(fields[name], factor, kind.noise_parameters[name])
        mechanisms.append({**said, "mechanism": fields})
    return {**body, "mechanisms": mechanisms}


def _scaled(value: Fraction, factor: Fraction, exponent: int) -> Fraction:
    """A parameter with a noise factor applied, as a decimal with no less noise."""
    exact = value * factor**exponent
    rounded = math.floor(exact * 10**12) if exponent < 0 else math.ceil(exact * 10**12)
    return Fraction(rounded, 10**12)
