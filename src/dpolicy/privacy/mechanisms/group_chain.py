"""Chain bound: the curve for a group of k units from the curve for one unit (theory 4.2).

E_k(α) = Σ_{j<k} kα/(kα−j) · E_1(kα−j), for any α > 1: Bun and Steinke's Lemma 5.2 applied along a
chain of k neighbours. It is exact for Gaussians. It evaluates the curve at orders up to kα, so a
curve is a function and not a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable

#: Largest number of terms. A longer chain is split into parts, each bounded by its largest term.
MAX_TERMS = 512

#: Exceeds the rounding error of a sum of `MAX_TERMS` positive terms.
_SUM_ERROR = 1 + MAX_TERMS * 2.0**-51

#: (above, ρ): from the order `above` on the curve is exactly ρ·α, so its terms are all kα·ρ.
Straight = tuple[float, float]


def group_divergence(
    curve: Callable[[float], float], k: int, order: float, straight: Straight = (math.inf, 0.0)
) -> float:
    """Return E_k at one order."""
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
        # E does not decrease and the weight grows with j, so the ends bound the part.
        total += size * top / (top - (first + size - 1)) * curve(top - first)
        if total == math.inf:
            break
    return total * _SUM_ERROR
