"""Cost of a pure mechanism beside a reserve, in closed form (theory/reserves, 3)."""

from __future__ import annotations

import math

from dpolicy.privacy.conversion import gaussian_log_delta
from dpolicy.privacy.normal_distribution import central_quantile, tail_quantile

#: Relative error of the variance r + c in `pure_reserve_cost`: its functions are accurate to 2⁻⁴⁶,
#: and the variance is at most 6 times as sensitive as the distance or its logarithm.
_VARIANCE_ERROR = 2.0**-43


def pure_reserve_cost(epsilon: float, size: float) -> float:
    """Return an upper bound of the cost of ε-DP beside a reserve of this size.

    The cost c makes G(r + c, 0) the total variation distance of RR_ε ⊗ N_r, which is
    tanh(ε/2) + 2G(r, ε)/(1 + e^ε). From ε = 2 on its complement 2(1 − G)/(1 + e^ε) is used.
    """
    if not epsilon:
        return 0.0
    smoothed = min(math.exp(gaussian_log_delta(math.sqrt(size), epsilon)), 1.0)
    if epsilon < 2:
        distance = math.tanh(epsilon / 2) + 2 * smoothed / (1 + math.exp(epsilon))
        shift = central_quantile(distance)
    else:
        shift = tail_quantile(epsilon + math.log1p(math.exp(-epsilon)) - math.log1p(-smoothed))
    variance = 4 * shift * shift
    return variance - size + variance * _VARIANCE_ERROR
