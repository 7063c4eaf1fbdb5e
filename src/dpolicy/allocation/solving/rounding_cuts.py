"""Lines and a choice in parts → sharper lines, which every whole choice keeps and this one breaks.

Mixed-integer rounding (Marchand and Wolsey 2001): where some of a line Σ aᵢxᵢ ≤ 1 is written as
1 − xᵢ, divided by d, the coefficients may be rounded to ⌊a⌋ + max(0, {a} − f)/(1 − f) and what is
left to its floor, f being its fraction. The rounded coefficient is continuous in a, and f is kept
away from 0 and 1; so errors of floats stay small, and what is left is raised by more than them.
"""

from __future__ import annotations

import numpy as np

from dpolicy.allocation.solving.utilisation import Floats

#: Lines that are fuller than this are looked at.
_FULL = 0.97
#: In parts by less is whole.
_CLEAR = 1e-4
#: Divisors that are tried for a line: so many of its own shares, each with these factors.
_DIVISORS, _FACTORS = 12, (1.0, 0.5, 2.0)
#: How near to whole what is left may be, and how far, in lengths, a line must be broken.
_NEAR, _BROKEN = 0.01, 1e-3
#: Sums of floats err by less, for a coefficient of one.
_MARGIN = 1e-9


def rounding_cuts(lines: Floats, x: Floats) -> tuple[Floats, Floats]:
    """New lines Σ values · x ≤ most: their values, line by line, and what is most for each."""
    found = [_rounded(line, x) for line in lines[(lines * x).sum(axis=1) > _FULL]]
    new = [pair for pair in found if pair is not None]
    values = np.array([value for value, _ in new]).reshape(len(new), len(x))
    return values, np.array([most for _, most in new])


def _rounded(line: Floats, x: Floats) -> tuple[Floats, float] | None:
    """The rounding of a line that is broken most, if one is."""
    inside = np.flatnonzero(line)
    share, taken = line[inside], x[inside]
    turned = taken > 0.5
    sign = np.where(turned, -1.0, 1.0)
    left = 1 - share[turned].sum()
    divisors = _divisors(share[(taken > _CLEAR) & (taken < 1 - _CLEAR)])
    fraction = left / divisors - np.floor(left / divisors)
    divisors = divisors[(fraction > _NEAR) & (fraction < 1 - _NEAR)]
    if not len(divisors):
        return None
    most = np.floor(left / divisors)
    fraction = (left / divisors - most)[:, None]
    parts = share * sign / divisors[:, None]
    whole = np.floor(parts)
    values = whole + np.maximum(parts - whole - fraction, 0) / (1 - fraction)
    beyond = (values * np.where(turned, 1 - taken, taken)).sum(axis=1) - most
    beyond /= np.sqrt((values * values).sum(axis=1)) + _CLEAR
    best = int(beyond.argmax())
    if beyond[best] <= _BROKEN:
        return None
    found = np.zeros(len(x))
    found[inside] = values[best] * sign
    slack = _MARGIN * (1 + np.abs(values[best]).sum())
    return found, float(most[best] - values[best][turned].sum() + slack)


def _divisors(shares: Floats) -> Floats:
    """Some of the shares that are taken in part, and their halves and doubles."""
    known = np.unique(shares)
    if len(known) > _DIVISORS:
        known = known[np.linspace(0, len(known) - 1, _DIVISORS).astype(np.intp)]
    return np.concatenate([known * factor for factor in _FACTORS])
