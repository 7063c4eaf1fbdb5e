"""Per-release rules decided point by point: the mechanisms that read a point, composed exactly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product

import numpy as np

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.decisions.decide import match_mechanisms
from dpolicy.decisions.resolution import ResolvedMechanism
from dpolicy.privacy.loss_arrays import add_saturating
from dpolicy.privacy.loss_distribution.unit_runs import certify_runs
from dpolicy.releases.regions import contains


def holds_at_every_point(
    enforced: EnforcedPolicy, mechanisms: Sequence[ResolvedMechanism], number: int, days: range
) -> bool:
    """Return whether a per-release rule holds at every partition value and day."""
    section = enforced.each_release
    matches, errors = match_mechanisms(section, mechanisms)
    assert not errors
    rule = section.compiled.rules[number]
    assert rule.bound.exact is not None
    unit = list(enforced.policy.units).index(rule.unit)
    members = [
        (mechanism, section.granularities.blocks(mechanism.region, number))
        for mechanism, match in zip(mechanisms, matches, strict=True)
        if match is not None and number in section.compiled.index.rules_for_match(match)
    ]
    axes = [range(low, high) for low, high in section.full_extent[:-1]]
    for point in product(*axes, days):
        here = [mechanism for mechanism, blocks in members if contains(blocks, point)]
        if not here:
            continue
        cost = reduce(add_saturating, (mechanism.costs[unit] for mechanism in here))
        if section.bounds_for(np.array([number])).are_within(cost[np.newaxis])[0]:
            continue
        runs = [enforced.mechanism_runs(mechanism.statement)[unit] for mechanism in here]
        epsilon = certify_runs(runs, rule.bound.exact.delta)
        if epsilon is None or epsilon > rule.bound.exact.epsilon:
            return False
    return True
