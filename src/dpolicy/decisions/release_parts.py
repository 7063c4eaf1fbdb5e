"""Parts of a release: fewer of its mechanisms, each with at most its loss.

A release that a per-release rule accepts by its loss distribution has a fixed list of loss pairs.
An analyst may choose a part of it from earlier outputs: the pairs of the whole release still
dominate the part. They do not cover another mechanism in place of a stated one
(docs/theory/exact.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from dpolicy.privacy.mechanisms.gaussian import DiscreteGaussian
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.releases.release import MechanismRequest

#: Parameters with which the loss of every kind grows, and with which it falls.
_GROWING = frozenset({"count", "steps", "queries", "participations", "epsilon", "mu"})
_FALLING = frozenset({"sigma", "noise_multiplier", "scale"})


def is_part(used: Sequence[MechanismRequest], whole: Sequence[MechanismRequest]) -> bool:
    """Return whether every mechanism is a different one of `whole`, with at most its loss.

    Of several that are possible, each mechanism takes one with the smallest loss, so that the order
    of mechanisms that differ in one parameter does not matter.
    """
    remaining = list(whole)
    for request in used:
        stated = _find_smallest(request, remaining)
        if stated is None:
            return False
        remaining.remove(stated)
    return True


def _find_smallest(
    used: MechanismRequest, remaining: Sequence[MechanismRequest]
) -> MechanismRequest | None:
    smallest: MechanismRequest | None = None
    for other in remaining:
        if _is_within(used, other) and (smallest is None or _is_within(other, smallest)):
            smallest = other
            if other.mechanism == used.mechanism:
                break
    return smallest


def _is_within(used: MechanismRequest, stated: MechanismRequest) -> bool:
    same = replace(used, name=stated.name, mechanism=stated.mechanism)
    return same == stated and _loses_at_most(used.mechanism, stated.mechanism)


def _loses_at_most(used: Mechanism, stated: Mechanism) -> bool:
    """Return whether two mechanisms of a kind differ only by more noise or fewer runs."""
    if type(used) is not type(stated):
        return False
    # That more noise lowers every δ(ε) is not proven for the discrete Gaussian.
    falling = frozenset() if isinstance(used, DiscreteGaussian) else _FALLING
    for parameter in fields(used):
        new, old = (getattr(mechanism, parameter.name) for mechanism in (used, stated))
        if new == old or (parameter.name in _GROWING and new < old):
            continue
        if not (parameter.name in falling and new > old):
            return False
    return True
