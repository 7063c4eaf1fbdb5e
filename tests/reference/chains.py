"""Naive twin of `privacy/shares/chains.py`: weights first, then thresholds, in 60 digits."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mpmath import mp

from dpolicy.privacy.shares.chains import DeltaShares


def real(value: Fraction) -> Any:
    """Return a fraction with 60 digits."""
    return mp.mpf(value.numerator) / value.denominator


def weights(epsilon: Fraction, delta: Fraction, shares: DeltaShares) -> dict[Fraction, Any]:
    """Return the weight of every order, from the definition of a chain."""
    with mp.workdps(60):
        inverse = -mp.log(real(delta))
        result: dict[Fraction, Any] = {}
        for chain, share in shares:
            left = real(share)
            for handover in chain.handovers:
                kept = mp.mpf(1)
                if handover.start is not None:
                    line = real(handover.start) + real(handover.slope) * real(epsilon)
                    kept = max(real(handover.floor), min(mp.mpf(1), mp.e ** (inverse - line)))
                result[handover.order] = result.get(handover.order, mp.mpf(0)) + left * kept
                left *= 1 - kept
        return {order: weight for order, weight in result.items() if weight}


def limits(
    epsilon: Fraction, delta: Fraction, shares: DeltaShares, mass: Fraction
) -> dict[Fraction, Any]:
    """Return b(α) = ε − log(1 − 1/α) + log(α δ w(α)) / (α − 1) of every order."""
    with mp.workdps(60):
        return {
            order: real(epsilon)
            - mp.log(1 - 1 / real(order))
            + mp.log(real(order) * real(delta) * weight * real(mass)) / (real(order) - 1)
            for order, weight in weights(epsilon, delta, shares).items()
        }
