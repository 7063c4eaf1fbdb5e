"""Edits of a release body that counter-offers propose."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

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
    for said in body["mechanisms"]:
        fields = dict(said["mechanism"])
        scalable = [name for name in _NOISE.get(fields["kind"], {}) if name in fields]
        if not scalable or "renyi" in fields or "xi" in fields:
            return None
        for name in scalable:
            fields[name] = _scaled(fields[name], factor, _NOISE[fields["kind"]][name])
        mechanisms.append({**said, "mechanism": fields})
    return {**body, "mechanisms": mechanisms}


#: How a noise factor f acts on each parameter: the exponent of f. Losses fall as noise grows.
_NOISE: dict[str, dict[str, int]] = {
    "gaussian": {"sigma": 1},
    "discrete-gaussian": {"sigma": 1},
    "laplace": {"scale": 1},
    "discrete-laplace": {"scale": 1},
    "exponential": {"epsilon": -1},
    "report-noisy-max": {"epsilon": -1},
    "sparse-vector": {"epsilon-threshold": -1, "epsilon-queries": -1, "epsilon-values": -1},
    "dp-sgd": {"noise-multiplier": 1},
    "tree-aggregation": {"noise-multiplier": 1},
    "pate": {"sigma": 1},
    "declared": {"epsilon": -1, "rho": -2, "mu": -1},
}


def _scaled(value: Fraction, factor: Fraction, exponent: int) -> Fraction:
    """Apply a noise factor to a parameter; round to 12 decimals towards more noise."""
    exact = value * factor**exponent
    rounded = math.floor(exact * 10**12) if exponent < 0 else math.ceil(exact * 10**12)
    return Fraction(rounded, 10**12)
