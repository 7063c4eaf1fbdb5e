"""A curve for one unit → the curve for a group of k: the chain bound (theory 4.2).

E_k(α) = Σ_{j<k} kα/(kα−j) · E_1(kα−j), for any α > 1: Bun and Steinke's Lemma 5.2 unrolled over a
chain of k neighbours. Exact for Gaussians. It asks for orders up to kα, so curves are functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

#: Longer chains are summed in pieces, each bounded by its largest term.
MAX_TERMS = 512

#: What rounding may take from a sum of so many positive terms, and more.
_SUM_ERROR = 1 + MAX_TERMS * 2.0**-51

#: From `above` on, a curve that is ρ·α exactly: its terms of the chain are all kα·ρ.
Straight = tuple[float, float]


def group_divergence(
    curve: Callable[[float], float], k: int, order: float, straight: Straight = (math.inf, 0.0)
) -> float:
    """E_k at one order."""
    top = k * order
    above, rho = straight
    # Terms j with kα − j > above are kα·ρ each.
    skipped = min(k, max(0, math.ceil(top - above))) if above < top else 0
    if skipped == k:
        return k * top * rho
    total = skipped * top * rho
    step = -(-(k - skipped) // MAX_TERMS)
    for first in range(skipped, k, step):
        size = min(step, k - first)
        # E is non-decreasing and the weight grows with j: the ends bound the piece.
        total += size * top / (top - (first + size - 1)) * curve(top - first)
        if total == math.inf:
            break
    return total * _SUM_ERROR
