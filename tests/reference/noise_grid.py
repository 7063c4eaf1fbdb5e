"""Least noise by brute force: every combination of noise factors on a grid is decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any


def smallest_total_variance(
    body: Mapping[str, Any],
    is_allowed: Callable[[Mapping[str, Any]], bool],
    factors: Sequence[Fraction],
) -> Fraction | None:
    """Return the smallest sum of σ² of Gaussian mechanisms over the grid; None if none is allowed.

    No factor is below 1, because an offer never takes noise away.
    """
    best: Fraction | None = None
    for choice in product(factors, repeat=len(body["mechanisms"])):
        mechanisms = [
            {**m, "mechanism": {**m["mechanism"], "sigma": m["mechanism"]["sigma"] * factor}}
            for m, factor in zip(body["mechanisms"], choice, strict=True)
        ]
        total = sum((m["mechanism"]["sigma"] ** 2 for m in mechanisms), Fraction(0))
        if (best is None or total < best) and is_allowed({**body, "mechanisms": mechanisms}):
            best = total
    return best
