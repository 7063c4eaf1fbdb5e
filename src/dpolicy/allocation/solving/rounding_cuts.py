"""Mixed-integer rounding (MIR) cuts, which integer solutions satisfy and the relaxed one violates.

Marchand and Wolsey 2001: take an inequality Σ aᵢxᵢ ≤ 1, replace some xᵢ by their complement 1 − xᵢ
and divide by d. Then each coefficient a may be rounded to ⌊a⌋ + max(0, {a} − f)/(1 − f) and the
right-hand side b to ⌊b⌋, where f = {b} is the fraction of b. The rounded coefficient is continuous
in a, and f is kept away from 0 and 1, so float errors stay small; the right-hand side is raised by
more than these errors.
"""

from __future__ import annotations

import numpy as np

from dpolicy.allocation.solving.utilisation import Floats

#: Inequalities with a higher utilisation are tried.
_MIN_UTILISATION = 0.97
#: A value of x within this distance of 0 or 1 counts as integral.
_INTEGRAL = 1e-4
#: Divisors tried per inequality: a sample of at most so many of its shares, times each factor.
_DIVISORS, _FACTORS = 12, (1.0, 0.5, 2.0)
#: Smallest distance of f from 0 and 1, and smallest violation of a cut (Euclidean distance).
_MIN_FRACTION, _MIN_VIOLATION = 0.01, 1e-3
#: Bound on the float error of a sum, per unit of coefficients.
_MARGIN = 1e-9


def rounding_cuts(shares: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Return violated MIR cuts Σ values · x ≤ limit as a matrix of values and a vector of limits.

    `lines` holds the coefficients of Σ shares · x ≤ 1, one inequality per row.
    """
    tight = shares[(shares * x).sum(axis=1) > _MIN_UTILISATION]
    cuts = [cut for row in tight if (cut := _most_violated_cut(row, x)) is not None]
    values = np.array([value for value, _ in cuts]).reshape(len(cuts), len(x))
    return values, np.array([limit for _, limit in cuts])


def _most_violated_cut(row: Floats, x: Floats) -> tuple[Floats, float] | None:
    """Return the cut of one inequality that x violates most; None if x violates none."""
    inside = np.flatnonzero(row)
    share, level = row[inside], x[inside]
    complemented = level > 0.5
    sign = np.where(complemented, -1.0, 1.0)
    right = 1 - share[complemented].sum()
    divisors = _candidate_divisors(share[(level > _INTEGRAL) & (level < 1 - _INTEGRAL)])
    fraction = right / divisors - np.floor(right / divisors)
    divisors = divisors[(fraction > _MIN_FRACTION) & (fraction < 1 - _MIN_FRACTION)]
    if not len(divisors):
        return None
    limits = np.floor(right / divisors)
    fraction = (right / divisors - limits)[:, None]
    scaled = share * sign / divisors[:, None]
    floors = np.floor(scaled)
    values = floors + np.maximum(scaled - floors - fraction, 0) / (1 - fraction)
    violation = (values * np.where(complemented, 1 - level, level)).sum(axis=1) - limits
    violation /= np.sqrt((values * values).sum(axis=1)) + _INTEGRAL
    best = int(violation.argmax())
    if violation[best] <= _MIN_VIOLATION:
        return None
    cut = np.zeros(len(x))
    cut[inside] = values[best] * sign
    slack = _MARGIN * (1 + np.abs(values[best]).sum())
    return cut, float(limits[best] - values[best][complemented].sum() + slack)


def _candidate_divisors(shares: Floats) -> Floats:
    """Return a sample of the fractionally selected shares, with their halves and doubles."""
    distinct = np.unique(shares)
    if len(distinct) > _DIVISORS:
        distinct = distinct[np.linspace(0, len(distinct) - 1, _DIVISORS).astype(np.intp)]
    return np.concatenate([distinct * factor for factor in _FACTORS])
