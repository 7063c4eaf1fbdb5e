"""Reported blocks: the numbers of a recorded reason, recomputed at the block that it names.

Before version 0.3, the block that a reason reports depended on how earlier charges cut the space.
Where it is not the block that is reported now, the audit recomputes the reason there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedPolicy, EnforcedSection
from dpolicy.decisions.completion import Reading
from dpolicy.decisions.decide import RuleChecks, charges_by_region, check_release, match_mechanisms
from dpolicy.decisions.reasons import reason_with_room
from dpolicy.decisions.resolution import ResolvedMechanism, resolve_or_reject
from dpolicy.decisions.tightest_blocks import TightestBlock
from dpolicy.errors import OperationRejected
from dpolicy.pdp.request_evaluation import active_policy
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.privacy.loss_arrays import LossArray, add_saturating
from dpolicy.releases.decision import Reason
from dpolicy.releases.regions import Point, contains
from dpolicy.releases.release import Release


def recompute_reason(
    state: LedgerState, release: Release, recorded: Reason, reading: Reading
) -> Reason | None:
    """Return the reason for the rule and the block of a recorded reason.

    Return None if the release does not charge the rule there.
    """
    enforced = active_policy(state)
    section = enforced.each_release if recorded.each_release else enforced.cumulative
    balances = section.empty_balances() if recorded.each_release else state.balances
    mechanisms = resolve_or_reject(release, enforced, reading)
    matches, _ = match_mechanisms(section, mechanisms)
    charges = charges_by_region(section, mechanisms, matches, state.today)
    number = _find_rule(section, charges, recorded)
    point = _parse_point(section, recorded)
    if number is None or point is None:
        return None
    if recorded.method:
        return _certified_reason(enforced, mechanisms, number, state.today)
    return _build_reason(section, balances, charges, number, point)


def _certified_reason(
    enforced: EnforcedPolicy, mechanisms: Sequence[ResolvedMechanism], number: int, today: int
) -> Reason | None:
    """Return the reason for a per-release rule that a loss distribution decides."""
    matches, _ = match_mechanisms(enforced.each_release, mechanisms)
    checks = check_release(enforced, mechanisms, matches, today)
    position = int(np.flatnonzero(checks.rule_numbers == number)[0])
    return reason_with_room(checks, position) if position in checks.exact else None


def _find_rule(section: EnforcedSection, charges: Sequence[Charge], recorded: Reason) -> int | None:
    """Return the number of the rule that a recorded reason names, if it is charged."""
    for charge in charges:
        for number in charge.rule_numbers.tolist():
            rule = section.describe_rule(number)
            if (rule["rule"], rule["unit"]) == (recorded.rule, recorded.unit):
                return cast(int, number)
    return None


def _parse_point(section: EnforcedSection, recorded: Reason) -> Point | None:
    """Return the smallest point of the recorded block; None for an unknown place."""
    location = {name: str(value) for name, value in recorded.location.items()}
    try:
        region = section.granularities.space.parse_location(location)
    except OperationRejected:
        return None
    box = section.full_extent if region is None else region.boxes[0]
    return tuple(
        max(low, start) for (low, _), (start, _) in zip(box, section.full_extent, strict=True)
    )


def _build_reason(
    section: EnforcedSection,
    balances: Balances,
    charges: Sequence[Charge],
    number: int,
    point: Point,
) -> Reason | None:
    spent = balances.segments_for(number).amounts_at(point)
    cost = _cost_at(section, charges, number, point)
    if cost is None:
        return None
    numbers = np.array([number])
    holds = section.bounds_for(numbers).are_within(add_saturating(spent, cost)[np.newaxis])
    is_split = any(
        balances.needs_segments(charge)[charge.rule_numbers == number].any() for charge in charges
    )
    tightest = {0: TightestBlock(point, spent)} if is_split else {}
    cutoff = charges[0].cutoff
    checks = RuleChecks(
        section, numbers, spent[np.newaxis], cost[np.newaxis], holds, tightest, cutoff
    )
    return reason_with_room(checks, 0)


def _cost_at(
    section: EnforcedSection, charges: Sequence[Charge], number: int, point: Point
) -> LossArray | None:
    """Return what a release costs a rule at a point; None if it is not charged there."""
    total: LossArray | None = None
    for charge in charges:
        rows = charge.rows[charge.rule_numbers == number]
        blocks = section.granularities.blocks(charge.region, number, charge.cutoff)
        if len(rows) and contains(blocks, point):
            total = rows[0] if total is None else add_saturating(total, rows[0])
    return total
